#include "04_sharding/owners.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "common/core/error.h"

namespace aisc {

std::vector<int> owners_of(std::span<const std::int64_t> counts, int ranks) {
  if (ranks < 1) fail(fmt::format("owners: {} ranks, expected 1 or more", ranks));
  // LAB 04.8: who owns which unit
  // > counts[u] are the elements of unit u; the result has the owner of unit u at place u, in the
  // > model's order. In which order units are dealt, and to which rank, the header says.
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
