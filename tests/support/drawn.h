// Sizes of tests that grade, drawn anew for each seed: code that knows the sizes of one run does
// not pass the next. The seed is AISC_TEST_SEED (`./aisc grade --seed`), else 1.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "common/core/rng.h"

namespace aisc {

inline std::uint64_t test_seed() {
  const char* text = std::getenv("AISC_TEST_SEED");
  return text ? std::strtoull(text, nullptr, 10) : 1;
}

// A number of low .. high, the same for the same seed and `what` ("samples of MaeMutex").
inline std::int64_t drawn(std::string_view what, std::int64_t low, std::int64_t high) {
  const Philox random(test_seed(), what);
  return low +
         static_cast<std::int64_t>(random.below(0, static_cast<std::uint64_t>(high - low + 1)));
}

}  // namespace aisc
