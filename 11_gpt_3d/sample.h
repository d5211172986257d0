// Text from a model of bytes: one byte after the other, each drawn from what the model expects.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "common/nn/driver.h"

namespace aisc {

struct SampleOptions {
  std::int64_t bytes = 400;  // to generate
  double temperature = 0.8;  // 0: always the likeliest byte
  std::uint64_t seed = 1;    // the same seed gives the same text
};

// Continues `prompt` (empty: a newline) and returns what was generated, without the prompt. Looks
// back at most model.config().context bytes. Throws Error if the vocabulary has less than 256
// entries (entries beyond the bytes are never drawn) or the temperature is negative. `each` sees
// every byte as it comes and returns false to stop.
std::string sample(
    const Rank& rank, const Gpt& model, const std::string& prompt, const SampleOptions& options,
    const std::function<bool(char)>& each = [](char) { return true; });

}  // namespace aisc
