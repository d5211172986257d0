#include "common/core/clock.h"

#include <algorithm>

#include "common/core/error.h"

namespace aisc {

double Clock::now() const {
  if (is_virtual()) return virtual_seconds_;
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void Clock::require_virtual() const {
  if (!is_virtual()) fail("a wall clock cannot be advanced");
}

void Clock::advance(double seconds) {
  require_virtual();
  if (!(seconds >= 0)) fail("a clock is advanced by 0 or more, found " + std::to_string(seconds));
  virtual_seconds_ += seconds;
}

void Clock::advance_to(double seconds) {
  require_virtual();
  virtual_seconds_ = std::max(virtual_seconds_, seconds);
}

}  // namespace aisc
