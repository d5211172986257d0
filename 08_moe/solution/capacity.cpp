#include "08_moe/capacity.h"

#include <algorithm>
#include <cmath>

#include "common/core/range.h"

namespace aisc {

std::int64_t expert_capacity(double factor, std::int64_t tokens, std::int64_t chosen,
                             std::int64_t experts) {
  if (factor == 0) return tokens;
  const double even = static_cast<double>(chosen * tokens) / static_cast<double>(experts);
  return std::clamp<std::int64_t>(std::llround(std::ceil(factor * even)), 1, tokens);
}

std::vector<std::uint8_t> within_capacity(std::span<const std::int32_t> experts,
                                          std::int64_t chosen, std::int64_t expert_count,
                                          std::int64_t capacity) {
  // LAB 08.3: capacity
  // > experts[t * chosen + j] is choice j of token t. In which order do experts take them? Count
  // > how many each has taken.
  std::vector<std::uint8_t> kept(experts.size());
  std::vector<std::int64_t> taken(index(expert_count));
  const std::int64_t tokens = std::ssize(experts) / chosen;
  for (std::int64_t j = 0; j < chosen; ++j)
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int32_t expert = experts[index(t * chosen + j)];
      if (expert >= 0 && taken[index(expert)] < capacity) {
        ++taken[index(expert)];
        kept[index(t * chosen + j)] = 1;
      }
    }
  return kept;
  // END LAB 08.3
}

}  // namespace aisc
