// A text to learn whose entropy is known, for programs that show something.
#pragma once

#include <cstdint>
#include <vector>

#include "common/core/rng.h"

namespace aisc {

inline constexpr std::int64_t kMarkovTokens = 32;

// Each token is a function of the one before, seven times in ten, else any of 32: no model can be
// below 1.60 nats a token.
inline std::vector<std::uint8_t> markov_text(std::size_t length) {
  const Philox random(1, "text");
  std::vector<std::uint8_t> text{1};
  for (std::uint64_t i = 0; text.size() < length; ++i)
    text.push_back(static_cast<std::uint8_t>(random.below(2 * i, 10) < 7
                                                 ? (text.back() * 5 + 3) % kMarkovTokens
                                                 : random.below(2 * i + 1, kMarkovTokens)));
  return text;
}

}  // namespace aisc
