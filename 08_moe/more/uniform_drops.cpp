#include "08_moe/more/uniform_drops.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "08_moe/capacity.h"
#include "common/core/range.h"
#include "common/core/rng.h"

namespace aisc {

// By logarithms: 256^256 is no double.
double uniform_dropped_share(std::int64_t mean_load) {
  const auto C = static_cast<double>(mean_load);
  return std::exp(C * std::log(C) - C - std::lgamma(C + 1));
}

double uniform_dropped_share(std::int64_t mean_load, std::int64_t experts) {
  const auto C = static_cast<double>(mean_load), E = static_cast<double>(experts);
  const double n = C * E, p = 1 / E;
  const double ways = std::lgamma(n + 1) - std::lgamma(C + 1) - std::lgamma(n - C + 1);
  return (1 - p) * std::exp(ways + C * std::log(p) + (n - C) * std::log1p(-p));
}

double counted_dropped_share(std::int64_t mean_load, std::int64_t experts, std::int64_t samples,
                             std::uint64_t seed) {
  const std::int64_t tokens = mean_load * experts;
  const std::int64_t room = expert_capacity(1, tokens, 1, experts);
  const Philox random(seed, "uniform routing");
  std::vector<std::int32_t> chosen(index(tokens));
  std::int64_t dropped = 0;
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    for (std::int64_t t = 0; t < tokens; ++t)
      chosen[index(t)] = static_cast<std::int32_t>(
          random.below(index(sample * tokens + t), static_cast<std::uint64_t>(experts)));
    const std::vector<std::uint8_t> kept = within_capacity(chosen, 1, experts, room);
    dropped += std::count(kept.begin(), kept.end(), std::uint8_t{0});
  }
  return static_cast<double>(dropped) / static_cast<double>(samples * tokens);
}

}  // namespace aisc
