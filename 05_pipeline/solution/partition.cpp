#include "05_pipeline/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/core/error.h"

namespace aisc {
namespace {

void check(std::span<const double> seconds, int stages) {
  if (stages < 1) fail(fmt::format("cut: {} stages, expected 1 or more", stages));
  if (std::ssize(seconds) < stages)
    fail(fmt::format("cut: {} layers over {} stages, expected one layer a stage or more",
                     seconds.size(), stages));
  for (std::size_t i = 0; i < seconds.size(); ++i)
    if (!(seconds[i] >= 0) || !std::isfinite(seconds[i]))
      fail(fmt::format("cut: layer {} takes {} seconds, expected 0 or more", i, seconds[i]));
}

}  // namespace

std::vector<std::int64_t> cut(std::span<const double> seconds, int stages) {
  check(seconds, stages);
  // LAB 05.4: cut
  // > The first layer of each stage of the best cut, 0 to begin with: partition.h says which of
  // > equally good ones. `seconds` are the layers', and there are as many as stages, or more.
  const std::size_t layers = seconds.size(), most = static_cast<std::size_t>(stages);
  constexpr double kNever = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> least(most + 1, std::vector<double>(layers + 1, kNever));
  least[0][layers] = 0;
  // Row s from row s - 1: every end of the first stage is tried, `sum` are the seconds up to it.
  for (std::size_t s = 1; s <= most; ++s)
    for (std::size_t i = 0; i < layers; ++i) {
      double sum = 0;
      for (std::size_t end = i + 1; end <= layers; ++end) {
        sum += seconds[end - 1];
        least[s][i] = std::min(least[s][i], std::max(sum, least[s - 1][end]));
      }
    }
  std::vector<std::int64_t> begins{0};
  // Before each turn the begins of the first stages stand, and the layers from the last of them on
  // can be cut over left + 1 stages without exceeding the least sum: the stage ends at the first
  // layer from which on the rest still can.
  for (std::size_t left = most - 1; left > 0; --left) {
    auto end = static_cast<std::size_t>(begins.back());
    double sum = 0;
    do {
      sum += seconds[end++];
    } while (std::max(sum, least[left][end]) > least[most][0]);
    begins.push_back(static_cast<std::int64_t>(end));
  }
  return begins;
  // END LAB 05.4
}

}  // namespace aisc
