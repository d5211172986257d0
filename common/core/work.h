// A handle on something that runs beside the caller: a collective, a copy.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

namespace aisc {

// What a backend implements: the operation behind a Work. It holds a share of the tensors that it
// reads and writes, so that they live until it is over.
class PendingOperation {
 public:
  virtual ~PendingOperation() = default;
  virtual void wait() = 0;  // returns when the operation is over; throws its error
  virtual bool done() = 0;  // true when wait() would not block
  // Blocks until one of `operations`, which are this rank's and include this one, is over; its
  // index. Here by asking in turn.
  virtual std::size_t wait_any(std::span<PendingOperation* const> operations);
  // The same for operations of any kinds, of which some may be made of others.
  static std::size_t wait_any_of(std::span<PendingOperation* const> operations);
  // The operation that this one waits for, where it only adds to it: else this one. nullptr: over.
  virtual PendingOperation* inside() { return this; }
  // wait() for a Work that is dropped: errors may only be kept, for the communicator's next call.
  virtual void abandon() noexcept {
    try {
      wait();
    } catch (...) {
    }
  }
};

// Default-constructed: already over. wait(): what follows comes after the operation; it blocks for
// CPU buffers; for CUDA the compute stream waits and the host goes on. The destructor waits too; an
// error that it meets is thrown by the next call on the communicator. In virtual time done()
// changes only with the clock: who asks in a loop must advance it.
class [[nodiscard]] Work {
 public:
  Work() = default;
  explicit Work(std::unique_ptr<PendingOperation> operation) : operation_(std::move(operation)) {}
  Work(Work&&) noexcept = default;
  Work& operator=(Work&& other) noexcept;
  ~Work();

  void wait();
  bool done() { return !operation_ || operation_->done(); }
  PendingOperation* pending() const { return operation_.get(); }  // nullptr: already over

 private:
  std::unique_ptr<PendingOperation> operation_;
};

}  // namespace aisc
