#include "common/comm/nccl/operation.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "common/core/cuda/check.h"

namespace aisc::nccl {

Operation::Operation(std::shared_ptr<Fabric> fabric, Agreement agreement,
                     std::vector<std::shared_ptr<Part>> parts)
    : fabric_(std::move(fabric)), agreement_(std::move(agreement)), parts_(std::move(parts)) {}

bool Operation::is_enqueued() const {
  return std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return !!part->over; });
}

void Operation::wait() {
  fabric_->progress();
  if (!is_enqueued()) {
    fabric_->wait_for(*agreement_);
    fabric_->progress_until([&] { return is_enqueued(); }, *agreement_,
                            parts_[0]->text() + ": NCCL has not begun");
  }
  follow();
  for (const auto& part : parts_) part->release();
  fabric_->expect(agreement_, std::move(parts_));
}

// What the device computes from here on, and memory that is given back, comes after the operation.
void Operation::follow() {
  const cudaStream_t compute = fabric_->device().stream();
  for (const auto& part : parts_)
    if (part->over) check_cuda(cudaStreamWaitEvent(compute, part->over->get(), 0), "waiting");
}

bool Operation::done() {
  try {
    fabric_->progress();
    if (!agreement_->done()) return false;
    fabric_->wait_for(*agreement_);
    return std::all_of(parts_.begin(), parts_.end(), [](const auto& p) { return p->is_over(); });
  } catch (...) {
    return true;  // wait() says why
  }
}

std::size_t Operation::wait_any(std::span<PendingOperation* const> operations) {
  std::size_t index = 0;
  const auto one_is_over = [&] {
    for (index = 0; index < operations.size(); ++index)
      if (operations[index]->done()) return true;
    return false;
  };
  fabric_->progress_until(one_is_over, *agreement_, parts_[0]->text() + ": it is not over");
  return index;
}

// A rank that an exception carries away does not wait for peers, which may wait for it.
void Operation::abandon() noexcept {
  try {
    if (std::uncaught_exceptions() == 0) return wait();
    *agreement_ = Work();
    fabric_->fail(parts_[0]->text() + ": left by an exception");
    follow();
  } catch (...) {
  }
}

}  // namespace aisc::nccl
