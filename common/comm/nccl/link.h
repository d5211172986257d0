// One communicator of NCCL's on a stream of its own, and the operations that are to run on it.
//
// Links are made so that they do not block (config.blocking = 0): connecting ranks, and enqueueing
// an operation on the stream, go on beside the caller, and progress() looks how far they are. So a
// peer that does not come holds up what needs it and nothing else, and no call of NCCL's can hang.
#pragma once

#include <nccl.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/communicator.h"
#include "common/core/cuda/cuda_device.h"

namespace aisc::nccl {

// One operation on one link. Its buffers live until it has been waited for.
struct Part {
  std::string where{};  // "tp, rank 1", for errors
  Call call{};
  std::vector<ConstBuffer> ins{};
  std::vector<Buffer> outs{};
  Tensor scratch{};
  CudaEvent ready{};                // what the device computes before
  std::optional<CudaEvent> over{};  // once it is enqueued

  std::string text() const;  // "tp, rank 1: all_reduce(16 x F32)"
  bool is_over() const { return over && over->is_over(); }
  void release();  // lets go of the buffers
};

class Link {
 public:
  // Of `size` ranks this is `rank`, `where` for errors. One rank alone needs no NCCL: the link is
  // its stream, and connected. Others wait for connect().
  Link(CudaDevice& device, std::string where, int rank, int size);
  ~Link();  // ends an operation that is under way
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // All ranks must have the same id: rank 0 makes it, and it comes to the others by whatever `work`
  // is: connecting begins when that is over.
  void make_id();
  View id_bytes(Device& host);
  void connect(Work work);
  bool is_connected();

  // Runs `steps` on the stream, behind part.ready and all earlier operations. Each step calls
  // NCCL as one group, and then what follows on the stream begins the next step.
  void push(std::shared_ptr<Part> part, std::vector<std::function<void()>> steps);
  // Enqueues what can be by now. Throws Error where NCCL or the GPU has found one.
  void progress();
  bool is_idle() const { return jobs_.empty(); }

  // Begins to take the communicator down, which needs its peers; true when that is over.
  void finalize();
  bool is_finalized();
  // Ends all that is under way; its buffers are then undefined.
  void abort() noexcept;

  ncclComm_t comm() const { return comm_; }
  cudaStream_t stream() const { return stream_; }

 private:
  struct Job {
    std::shared_ptr<Part> part;
    std::vector<std::function<void()>> steps;
    std::size_t next = 0;
  };
  bool is_free();  // nothing of NCCL's is under way on the host's side
  void run_step(Job& job);

  CudaDevice& device_;
  const std::string where_;
  const int rank_, size_;
  cudaStream_t stream_ = nullptr;
  ncclUniqueId id_{};
  std::optional<Work> id_comes_{};
  bool waits_for_id_;
  bool aborted_ = false;
  ncclComm_t comm_ = nullptr;
  std::deque<Job> jobs_;
};

}  // namespace aisc::nccl
