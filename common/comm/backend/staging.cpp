#include "common/comm/backend/staging.h"

#include <deque>
#include <memory>
#include <utility>

#include "common/comm/communicator.h"

namespace aisc {
namespace {

// Of one GPU: the host memory beside it, and the results that are still on their way back. It ends
// with its device, after all operations.
class HostSide {
 public:
  Device& memory() { return *memory_; }

  void keep(Work copy, Tensor from) {
    returning_.push_back({std::move(copy), std::move(from)});
    while (!returning_.empty() && returning_.front().copy.done()) {
      Return over = std::move(returning_.front());
      returning_.pop_front();
      over.copy.wait();  // throws what the GPU has found wrong meanwhile
    }
  }

 private:
  struct Return {
    Work copy;
    Tensor from;
  };
  std::unique_ptr<Device> memory_ = make_pinned_memory();
  std::deque<Return> returning_;
};

class StagedOperation final : public PendingOperation {
 public:
  StagedOperation(Work operation, std::vector<ConstBuffer> inputs, std::vector<Tensor> copies,
                  std::vector<Staging::Result> results)
      : inputs_(std::move(inputs)),
        copies_(std::move(copies)),
        results_(std::move(results)),
        operation_(std::move(operation)) {}

  void wait() override {
    operation_.wait();
    give_back();
  }
  bool done() override { return operation_.done(); }
  PendingOperation* inside() override { return operation_.pending(); }
  // The operation keeps its error, if there is one; the results are then undefined anyway.
  void abandon() noexcept override {
    try {
      operation_ = Work();
      give_back();
    } catch (...) {
    }
  }

 private:
  void give_back() {
    for (Staging::Result& result : results_) {
      if (!result.from) continue;
      const View to = result.to.view();
      Work copy = to.device().copy_async(to, result.from);
      if (to.device().is_host())
        copy.wait();
      else
        to.device().extension<HostSide>().keep(std::move(copy), std::move(result.from));
    }
    results_.clear();
  }

  std::vector<ConstBuffer> inputs_;
  std::vector<Tensor> copies_;
  std::vector<Staging::Result> results_;
  Work operation_;  // last: it ends before the memory it uses
};

}  // namespace

Tensor Staging::beside(const ConstView& view) const {
  Device& device = home_ ? *home_ : view.device().extension<HostSide>().memory();
  return Tensor({view.count()}, view.dtype(), device, Purpose::Communication);
}

void Staging::read(ConstBuffer& buffer) {
  const ConstView from = buffer.view();
  Tensor copy = beside(from);
  arriving_.push_back(copy.device().copy_async(copy, from, Queue::ToHost));
  bytes_ += static_cast<std::int64_t>(from.bytes());
  inputs_.push_back(std::exchange(buffer, ConstBuffer(ConstView(copy))));
  copies_.push_back(std::move(copy));
}

void Staging::read_and_write(Buffer& buffer, Access access) {
  const View view = buffer.view();
  Tensor copy = beside(view);
  const std::int64_t ways = (access.read ? 1 : 0) + (access.write ? 1 : 0);
  bytes_ += ways * static_cast<std::int64_t>(view.bytes());
  if (access.read) arriving_.push_back(copy.device().copy_async(copy, view, Queue::ToHost));
  Buffer whole = std::exchange(buffer, Buffer(copy.view()));
  if (access.write) {
    results_.push_back({std::move(whole), std::move(copy)});
    return;
  }
  results_.push_back({std::move(whole), Tensor()});
  copies_.push_back(std::move(copy));
}

void Staging::wait_for_inputs() {
  for (Work& copy : arriving_) copy.wait();
  arriving_.clear();
}

Work Staging::around(Work operation) && {
  return Work(std::make_unique<StagedOperation>(std::move(operation), std::move(inputs_),
                                                std::move(copies_), std::move(results_)));
}

bool copy_alone(const Collective& c) {
  const ConstView &in = c.in.view(), &out = c.out.view();
  if (in.count() != out.count() || (in && out && &in.device() != &out.device())) return false;
  if (in.count() > 0 && in.raw() != out.raw())
    c.out.view().device().copy(c.out.view(), in.reshaped(out.shape()));
  return true;
}

}  // namespace aisc
