#include "common/core/work.h"

#include <utility>

namespace aisc {

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
