// A network whose costs are powers of two, so that sums in floating point are exact and == is the
// right comparison of times.
#pragma once

#include <functional>
#include <vector>

#include "common/comm/launch.h"

namespace aisc::exact {

inline constexpr double kAlpha = 0x1p-10, kBeta = 0x1p-20, kGamma = 0x1p-22;
inline const Network kFlat{.link = {.latency_seconds = kAlpha, .seconds_per_byte = kBeta},
                           .reduce_seconds_per_byte = kGamma};

inline double bytes(double f32_count) { return 4 * f32_count; }
inline double message(double f32_count) { return kAlpha + bytes(f32_count) * kBeta; }

inline Tensor f32(Rank& rank, std::int64_t count) {
  return Tensor::zeros({count}, DType::F32, rank.device);
}

// The time at which each rank's body returns.
inline std::vector<double> end_times(LaunchOptions options, const std::function<void(Rank)>& body) {
  if (!options.network) options.network = kFlat;
  std::vector<double> times(static_cast<std::size_t>(options.ranks));
  launch(options, [&](Rank rank) {
    body(rank);
    times[static_cast<std::size_t>(rank.world.rank())] = rank.clock.now();
  });
  return times;
}

}  // namespace aisc::exact
