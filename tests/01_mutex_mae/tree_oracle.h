// The sum by the tree that reproducible.h describes, written out from its root.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace aisc {

inline double left_to_right(const std::vector<double>& values, std::size_t begin, std::size_t end) {
  double sum = 0;
  for (std::size_t k = begin; k < end; ++k) sum += values[k];
  return sum;
}

// The left subtree is the largest complete one that leaves something to the right.
inline double oracle_tree(const std::vector<double>& values, std::size_t begin, std::size_t end) {
  if (begin == end) return 0;
  if (end - begin == 1) return values[begin];
  std::size_t left = 1;
  while (2 * left < end - begin) left *= 2;
  return oracle_tree(values, begin, begin + left) + oracle_tree(values, begin + left, end);
}

// Of errors, in leaves of 256; their mean.
inline double oracle_of_reproducible(const std::vector<double>& errors) {
  std::vector<double> leaves;
  for (std::size_t begin = 0; begin < errors.size(); begin += 256)
    leaves.push_back(left_to_right(errors, begin, std::min(errors.size(), begin + 256)));
  return errors.empty()
             ? 0
             : oracle_tree(leaves, 0, leaves.size()) / static_cast<double>(errors.size());
}

}  // namespace aisc
