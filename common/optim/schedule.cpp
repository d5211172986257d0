#include "common/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace aisc {

double RateSchedule::at(std::int64_t step) const {
  const auto s = static_cast<double>(step), W = static_cast<double>(warmup_steps);
  if (step < warmup_steps && warmup == Warmup::Linear) return peak * (s + 1) / W;
  if (step < warmup_steps)
    return peak * std::min(1.0, std::log(s + 2) / std::log(std::max(2.0, W)));
  const auto share = [](std::int64_t part, std::int64_t whole) {
    return static_cast<double>(part) / static_cast<double>(std::max<std::int64_t>(1, whole));
  };
  if (decay == Decay::Linear)
    return floor + (peak - floor) *
                       std::max(0.0, share(total_steps - 1 - step, total_steps - warmup_steps));
  const double progress = std::min(1.0, share(step - warmup_steps, total_steps - 1 - warmup_steps));
  return floor + 0.5 * (peak - floor) * (1 + std::cos(std::numbers::pi * progress));
}

}  // namespace aisc
