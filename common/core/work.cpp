#include "common/core/work.h"

#include <chrono>
#include <thread>
#include <utility>

namespace aisc {

std::size_t PendingOperation::wait_any(std::span<PendingOperation* const> operations) {
  for (;;) {
    for (std::size_t i = 0; i < operations.size(); ++i)
      if (operations[i]->done()) return i;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

Work& Work::operator=(Work&& other) noexcept {
  Work finished(std::exchange(operation_, std::move(other.operation_)));
  return *this;
}

Work::~Work() {
  if (operation_) operation_->abandon();
}

void Work::wait() {
  if (const auto operation = std::exchange(operation_, nullptr)) operation->wait();
}

}  // namespace aisc
