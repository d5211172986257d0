// Yours to write; from 08_moe/solution/capacity.cpp (stub 71967b65f502).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
#include "08_moe/capacity.h"

#include <algorithm>
#include <cmath>

#include "common/core/error.h"
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
  // experts[t * chosen + j] is choice j of token t. In which order do experts take them? Count
  // how many each has taken.
  throw NotImplemented("lab 08.3: capacity", __FILE__, __LINE__);
  // END LAB 08.3
}

}  // namespace aisc
