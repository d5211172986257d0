#include "04_sharding/owners.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "common/core/error.h"

namespace aisc {

std::vector<int> owners_of(std::span<const std::int64_t> counts, int ranks) {
  if (ranks < 1) fail(fmt::format("owners: {} ranks, expected 1 or more", ranks));
  // LAB 04.8: who owns which unit
  // > Two things to keep: the units' indices in decreasing order of counts (std::stable_sort leaves
  // > equal ones in their order), and how many elements each rank has so far (std::min_element
  // > finds the first of the smallest). The result is by unit, in the model's order.
  std::vector<std::size_t> order(counts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return counts[a] > counts[b]; });
  std::vector<std::int64_t> elements(static_cast<std::size_t>(ranks));
  std::vector<int> owners(counts.size());
  for (const std::size_t unit : order) {
    const auto fewest = std::min_element(elements.begin(), elements.end());
    owners[unit] = static_cast<int>(fewest - elements.begin());
    *fewest += counts[unit];
  }
  return owners;
  // END LAB 04.8
}

}  // namespace aisc
