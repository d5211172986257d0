// What is recomputed in the backward pass instead of kept (nn/sequence.h), and what it costs.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/nn/gpt.h"

namespace aisc {

// A core of attention that keeps its input alone, made of one that keeps more.
using RecomputeCore =
    std::function<std::unique_ptr<Layer>(const Rank& rank, std::unique_ptr<Layer> core)>;

struct Recompute {
  std::int64_t blocks = 0;  // so many at a time, of which the input alone is kept; 0: none
  bool core = false;        // the core of attention
  bool attention = false, mlp = false;  // all of attention, the MLP
  // "auto": of these blocks alone (`chosen`, by block), which are found when sizes are known, so
  // that a step fits (02_cpu_offload/fit_savings.h).
  bool fitted = false;
  std::vector<bool> chosen = {};
  // Of cores so many bytes a rank are kept whole nevertheless, in place of their inputs: those of
  // the first micro-batches, as long as their backward has not come (Pass::kept).
  std::int64_t keep_bytes = 0;

  // "none", "block", "core", "attention", "mlp", "every:4", four blocks at a time, or "auto".
  // Throws Error for another text.
  static Recompute parse(const std::string& text);
  std::string to_string() const;

  // These parts recomputed so; around_core empty: Recomputed.
  GptParts parts(GptParts parts = gpt2_parts(), RecomputeCore around_core = {}) const;
  // FLOPs of a token that are computed a second time: a third of model FLOPs, forward's, of what is
  // recomputed. Beside GptConfig::flops_per_token, which counts the model's own.
  double repeated_flops_per_token(const GptConfig& model, std::int64_t tokens) const;
};

}  // namespace aisc
