// The one median of the course, for times that were measured several times.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace aisc {

// The middle of `values` in order, of an even number the mean of the two in the middle; 0 of none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace aisc
