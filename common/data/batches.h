// Batches of windows of a text in tokens. Which window a sample is depends on nothing but the seed
// and the sample's index in the whole run, so any number of ranks and micro-batches see the same
// samples.
#pragma once

#include <cstdint>

#include "common/core/rng.h"
#include "common/core/tensor.h"
#include "common/data/tokens.h"

namespace aisc {

// B windows of T tokens, and the token that follows each. On the batch's device.
struct Batch {
  Tensor tokens;   // (B, T) I32
  Tensor targets;  // (B, T) I32: targets[b][t] is the token after tokens[b][t]
};

// Windows drawn at random, with replacement, for training. Step s of a run with a global batch of G
// samples consists of the samples [s * G, (s + 1) * G), however they are divided. The tokens are
// not copied: the caller keeps them alive.
class BatchSampler {
 public:
  // Throws Error if there are less than context + 1 tokens, or context < 1.
  BatchSampler(TokenView tokens, std::int64_t context, std::uint64_t seed);

  // Where the window of sample i begins: a pure function of (seed, i), uniform over all windows.
  std::int64_t start(std::int64_t sample) const;
  // Samples first_sample .. first_sample + count - 1.
  Batch batch(Device& device, std::int64_t first_sample, std::int64_t count) const;

 private:
  TokenView tokens_;
  std::int64_t context_;
  Philox random_;
};

// `count` windows at even distances, the first at the beginning and the last at the end of the
// text: always the same, for validation. They overlap where the text is short. Throws as
// BatchSampler does.
Batch even_windows(TokenView tokens, std::int64_t context, std::int64_t count, Device& device);

}  // namespace aisc
