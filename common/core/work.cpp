#include "common/core/work.h"

#include <chrono>
#include <thread>
#include <typeinfo>
#include <utility>
#include <vector>

namespace aisc {

std::size_t PendingOperation::wait_any(std::span<PendingOperation* const> operations) {
  for (;;) {
    for (std::size_t i = 0; i < operations.size(); ++i)
      if (operations[i]->done()) return i;
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

std::size_t PendingOperation::wait_any_of(std::span<PendingOperation* const> operations) {
  std::vector<PendingOperation*> inside;
  bool one_kind = true;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    PendingOperation* operation = operations[i];
    while (operation && operation->inside() != operation) operation = operation->inside();
    if (!operation) return i;
    inside.push_back(operation);
    const PendingOperation &first = *inside[0], &last = *operation;
    one_kind = one_kind && typeid(first) == typeid(last);
  }
  return one_kind ? inside[0]->wait_any(inside) : inside[0]->PendingOperation::wait_any(inside);
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
