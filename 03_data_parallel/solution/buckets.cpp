#include "03_data_parallel/buckets.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/core/error.h"

namespace aisc {

std::vector<Range> bucket_layout(std::int64_t count, std::int64_t first, std::int64_t size) {
  if (first < 1 || size < 1)
    fail(fmt::format("buckets of {} and then {} elements, expected 1 or more", first, size));
  // LAB 03.3: bucket_layout
  // > A bucket ends where the one before it begins. Which one may be shorter than asked?
  std::vector<Range> buckets;
  // From the end of the buffer, where backward is first: before each turn the elements from `end`
  // on are in buckets.
  for (std::int64_t end = count; end > 0; end = buckets.back().begin) {
    const std::int64_t length = buckets.empty() ? first : size;
    buckets.push_back({std::max<std::int64_t>(0, end - length), end});
  }
  return buckets;
  // END LAB 03.3
}

std::vector<std::vector<std::size_t>> units_of_buckets(const FlatLayout& layout,
                                                       std::span<const Range> buckets) {
  std::vector<std::vector<std::size_t>> units(buckets.size());
  // Two ranges overlap where each begins before the other ends.
  for (std::size_t b = 0; b < buckets.size(); ++b)
    for (std::size_t u = 0; u < layout.units().size(); ++u) {
      const Range& unit = layout.units()[u].range;
      if (unit.begin < buckets[b].end && buckets[b].begin < unit.end) units[b].push_back(u);
    }
  return units;
}

}  // namespace aisc
