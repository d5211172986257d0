// What is recomputed in the backward pass instead of kept (nn/sequence.h), and what it costs.
#pragma once

#include <cstdint>
#include <string>

#include "common/nn/gpt.h"

namespace aisc {

// The same parts with a core of attention that keeps its input alone.
GptParts recompute_core(GptParts parts);

struct Recompute {
  std::int64_t blocks = 0;  // so many at a time, of which the input alone is kept; 0: none
  bool core = false;        // the core of attention

  // "none", "block", "core" or "every:4", four blocks at a time. Throws Error for another text.
  static Recompute parse(const std::string& text);
  std::string to_string() const;

  GptParts parts(GptParts parts = gpt2_parts()) const;  // recomputed so
  // FLOPs of a token that are computed a second time: a third of model FLOPs, forward's, of what is
  // recomputed. Beside GptConfig::flops_per_token, which counts the model's own.
  double repeated_flops_per_token(const GptConfig& model, std::int64_t tokens) const;
};

}  // namespace aisc
