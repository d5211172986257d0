// Buffers on a GPU, for a backend that reads and writes host memory alone. Each gets memory of the
// host in its place, pinned so that the GPU copies at full speed. Inputs are copied there before
// the operation begins, results back once it has been waited for.
#pragma once

#include <cstdint>
#include <vector>

#include "common/comm/buffer.h"
#include "common/core/work.h"

namespace aisc {

struct Collective;

// The buffers of one call. Between its first read() or write() and around() all its GPUs are used
// by this thread alone.
class Staging {
 public:
  // Buffers go to the host; or, with `home`, there: a GPU, for those that lie elsewhere.
  explicit Staging(Device* home = nullptr) : home_(home) {}

  // From now on `buffer` is the copy. An input is on its way there; of what is only written nothing
  // is copied in.
  void read(ConstBuffer& buffer);
  void write(Buffer& buffer) { read_and_write(buffer, {.read = false, .write = true}); }
  struct Access {
    bool read, write;
  };
  void read_and_write(Buffer& buffer, Access access);

  std::int64_t bytes() const { return bytes_; }  // there and back

  // Returns when the inputs are there: when the GPU has computed and copied them.
  void wait_for_inputs();
  // The call's Work: what `operation` does on the copies, then the results' way back. For a GPU
  // that is enqueued behind what it computes, and the host goes on.
  Work around(Work operation) &&;

  struct Result {
    Buffer to;
    Tensor from;  // none: `to` was only read
  };

 private:
  Tensor beside(const ConstView& view) const;

  Device* const home_;
  std::vector<ConstBuffer> inputs_;  // the caller's; its shares until the operation is over
  std::vector<Tensor> copies_;       // of inputs
  std::vector<Result> results_;
  std::vector<Work> arriving_;
  std::int64_t bytes_ = 0;
};

// A group of one rank, whose buffers lie on one GPU: does the collective by a copy there. False
// where that is not so, and nothing was done.
bool copy_alone(const Collective& collective);

}  // namespace aisc
