#include "common/core/clock.h"

#include <algorithm>
#include <thread>

#include "common/core/error.h"

namespace aisc {

Clock Clock::wall(std::chrono::steady_clock::time_point start) {
  Clock clock = wall();
  clock.start_ = start;
  return clock;
}

double Clock::now() const {
  if (is_virtual()) return virtual_seconds_;
  return seconds_at(std::chrono::steady_clock::now());
}

double Clock::seconds_at(std::chrono::steady_clock::time_point time) const {
  return std::chrono::duration<double>(time - start_).count();
}

void Clock::sleep_along() const {
  if (pace_ > 0)
    std::this_thread::sleep_until(start_ +
                                  std::chrono::duration_cast<std::chrono::steady_clock::duration>(
                                      std::chrono::duration<double>(virtual_seconds_ * pace_)));
}

void Clock::require_virtual() const {
  if (!is_virtual()) fail("a wall clock cannot be advanced");
}

void Clock::advance(double seconds) {
  require_virtual();
  if (!(seconds >= 0)) fail("a clock is advanced by 0 or more, found " + std::to_string(seconds));
  virtual_seconds_ += seconds;
  sleep_along();
}

void Clock::advance_to(double seconds) {
  require_virtual();
  virtual_seconds_ = std::max(virtual_seconds_, seconds);
  sleep_along();
}

}  // namespace aisc
