// What an operation that is given whole numbers checks of them.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "common/core/error.h"
#include "common/core/tensor.h"

namespace aisc::cpu {

// Throws Error naming the first number outside [low, high).
inline void check_range(const char* operation, const char* name, const ConstView& numbers,
                        std::int64_t low, std::int64_t high) {
  const auto values = numbers.values<std::int32_t>();
  const auto wrong = std::find_if(values.begin(), values.end(),
                                  [=](std::int32_t v) { return v < low || v >= high; });
  if (wrong != values.end())
    fail(fmt::format("{}: {}[{}] is {}, expected {} <= {} < {}", operation, name,
                     wrong - values.begin(), *wrong, low, name, high));
}

}  // namespace aisc::cpu
