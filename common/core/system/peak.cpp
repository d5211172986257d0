#include "common/core/system/peak.h"

#include <algorithm>

#include "common/core/median.h"

namespace aisc {
namespace {

constexpr double kWarmUpSeconds = 0.05;
constexpr int kSlicesWithoutRise = 20;
constexpr double kSecondsWithoutRise = 0.3;
constexpr double kMostSeconds = 0.8;  // a program that is started on a busy machine begins, too
constexpr double kNoise = 0.002;      // of two slices at the same clock: interrupts, the timer

}  // namespace

void PeakEstimate::add(const PeakSlice& slice) {
  rates_.push_back(slice.flops_per_second);
  best_ = std::max(best_, slice.flops_per_second);
  if (best_ > (1 + kNoise) * settling_) {
    settling_ = best_;
    slices_since_ = 0;
    seconds_since_ = 0;
  } else {
    ++slices_since_;
    seconds_since_ += slice.seconds;
  }
}

bool PeakEstimate::is_settled() const {
  return slices_since_ >= kSlicesWithoutRise && seconds_since_ >= kSecondsWithoutRise;
}

double PeakEstimate::spread_below(double peak) const {
  return rates_.empty() || peak <= 0 ? 0 : 1 - median(rates_) / peak;
}

PeakEstimate settled_peak(const std::function<PeakSlice()>& slice) {
  for (double seconds = 0; seconds < kWarmUpSeconds;) seconds += std::max(1e-6, slice().seconds);
  PeakEstimate peak;
  for (double seconds = 0; seconds < kMostSeconds && !peak.is_settled();) {
    const PeakSlice next = slice();
    peak.add(next);
    seconds += std::max(1e-6, next.seconds);
  }
  return peak;
}

}  // namespace aisc
