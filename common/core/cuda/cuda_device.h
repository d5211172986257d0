// A GPU as a Device, and what code that runs on it asks of it. Only sources in folders cuda/ and
// nccl/ include this.
//
// Everything is in the order of the compute stream: operations are enqueued there; memory that was
// released may be handed out again at once, since who uses it next is enqueued behind. What works
// on another stream therefore holds its tensors until the compute stream has been made to wait for
// it (Work).
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <string>
#include <vector>

#include "common/core/device.h"

namespace aisc {

// What a kernel found wrong in its data: an id outside its table, a target that is no class. In
// host memory that the GPU writes; the first stays until the host, when it waits, has thrown it.
struct Fault {
  int claimed;  // by the kernel that reports; the others' reports are lost
  int raised;   // set when the rest is there
  // Of the host, with {} for place, value and limit, as in
  // "embedding: id[{}] is {}, expected 0 <= id < {}".
  const char* text;
  long long place, value, limit;
};

// An event without timing. Movable, so that a pending operation can own it.
class CudaEvent {
 public:
  CudaEvent();
  CudaEvent(CudaEvent&& other) noexcept;
  CudaEvent& operator=(CudaEvent&& other) noexcept;
  ~CudaEvent();
  void record(cudaStream_t stream);
  bool is_over() const;  // throws what the work before it ended with
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

class CudaDevice final : public Device {
 public:
  // options.index must be a GPU's. Throws Error.
  explicit CudaDevice(const DeviceOptions& options);
  ~CudaDevice() override;

  const char* name() const override { return name_.c_str(); }
  DeviceKind kind() const override { return DeviceKind::Cuda; }
  void synchronize() override;

  int index() const { return index_; }
  int multiprocessors() const { return multiprocessors_; }
  // Of a block: 227 KiB on compute capability 9.0, 163 on 8.0, 99 on 8.6 and 8.9.
  std::size_t most_shared_bytes() const { return static_cast<std::size_t>(most_shared_bytes_); }
  // Makes this GPU the calling thread's current one and returns its stream: every call of the
  // runtime for this device begins here.
  cudaStream_t stream(Queue queue = Queue::Compute) const;
  // Where kernels report wrong data, as they see it (fault.h).
  Fault* fault() const { return fault_on_device_; }

  // What is enqueued on `later` from here on begins after what is on `earlier` now, whose device is
  // the current one.
  void order(cudaStream_t later, cudaStream_t earlier) const;

  // While the host waits for this device it asks each watch, which throws where that wait would not
  // end: a communicator whose peer is gone. `may_block`: it is called once before the wait and may
  // take its time, up to its own timeout.
  class Watch {
   public:
    virtual ~Watch() = default;
    virtual void look(bool may_block) = 0;
  };
  void add(Watch* watch);
  void remove(Watch* watch) noexcept;

  // The host waits for an event of any stream of this device; throws faults of kernels and what
  // watches say.
  void wait(const CudaEvent& event);

 private:
  void* do_allocate(std::size_t bytes) override;
  void do_free(void* block) noexcept override;
  void do_poison(void* block, std::size_t bytes) override;
  Work do_copy(View to, ConstView from, Queue queue) override;
  void do_zero(void* block, std::size_t bytes) override;
  void wait_where_a_copy_would(const View& to, const ConstView& from, cudaStream_t stream);
  void throw_fault();

  const int index_;
  const bool poison_;
  const std::string name_;
  int multiprocessors_ = 0;
  int most_shared_bytes_ = 0;
  std::array<cudaStream_t, 3> streams_{};  // by Queue
  Fault* fault_ = nullptr;                 // as the host sees it
  Fault* fault_on_device_ = nullptr;
  std::vector<Watch*> watches_;  // of the rank's thread alone
};

// `device`, which must be a GPU.
inline CudaDevice& as_cuda(Device& device) { return static_cast<CudaDevice&>(device); }

}  // namespace aisc
