// What of a model fits on a device: bytes of a GPU by running without numbers, and the largest
// batch and sequence, which is asked of that run again and again (Korthikanti et al., "Reducing
// activation recomputation in large transformer models", arXiv 2205.05198).
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "06_tensor_parallel/split_step.h"
#include "07_sequence_parallel/stored_attention.h"

namespace aisc {

// What t ranks share: the layers, or between these the tokens as well.
enum class LayerSplit { Tensor, TensorAndSequence };

GptParts split_parts(LayerSplit split, Communicator& tp, GptParts parts);

// A step on t ranks with the fused core, and one with attention that stores its scores and dropout
// that stores its masks.
SplitStep fused_step(LayerSplit split, int t, std::int64_t samples);
// Here, since it calls an exercise: a program's own archive comes before those of what that needs.
inline SplitStep stored_step(LayerSplit split, int t, std::int64_t samples, const char* recompute) {
  return {.ranks = t,
          .samples = samples,
          .recompute = Recompute::parse(recompute),
          .parts = [split](Communicator& tp) {
            return split_parts(split, tp, stored_attention_parts(&tp));
          }};
}

// A model of the paper's table 3, and how it lay on its GPUs.
struct PublishedModel {
  const char* name;
  std::int64_t heads, width, layers;
  int tensor, pipeline;
  std::int64_t samples;  // of a micro-batch

  GptConfig config() const;  // 2,048 tokens, 51,200 words, dropout 0.1, BF16
  SplitStep step(LayerSplit split, const char* recompute) const {
    return stored_step(split, tensor, samples, recompute);
  }
};
std::span<const PublishedModel> published_models();

// Bytes of a GPU of the first stage, whose step is the model's step().
struct StageBytes {
  double weights = 0, gradients = 0, optimizer = 0;
  double activations = 0;  // of the blocks; 1F1B has as many micro-batches in flight as stages

  double total() const { return weights + gradients + optimizer + activations; }
};
StageBytes first_stage(const PublishedModel& model, SplitStep step);

// The largest n >= 1 that fits, where all below one that fits do; 0: not even 1. Asks for 1, 2, 4
// .. and then bisects: twice the logarithm of n questions. Throws Error if 2^40 fits.
std::int64_t largest_that_fits(const std::function<bool(std::int64_t n)>& fits);

}  // namespace aisc
