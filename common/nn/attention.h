// Causal self-attention: every token looks at itself and at the tokens before it.
#pragma once

#include "common/nn/dropout.h"
#include "common/nn/linear.h"

namespace aisc {

// x (B, T, C) -> project(attention(queries, keys, values)). The fused weight `qkv` (3C, C) is
// head-major (H, 3, D, C), so that a tensor-parallel shard of it is a slice of rows. Scores are
// never stored: saved are qkv (3C per token), the output (C per token) and one number per token and
// head. With pass.cache, x is the next tokens of a sequence whose earlier keys and values are in
// the cache, and theirs are added to it; forward then throws Error in training.
class CausalSelfAttention final : public Layer {
 public:
  struct Options {
    std::int64_t width, heads;
    double residual_stddev = 0.02;  // of the output projection
    double dropout = 0;             // on the output
    std::uint64_t seed = 0;
  };
  // Throws Error if heads does not divide width.
  CausalSelfAttention(const Rank& rank, const std::string& name, const Options& options);

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override;

 private:
  Tensor attend(const Tensor& qkv, Saved& saved) const;
  Tensor attend_cached(const Tensor& qkv, const Pass& pass) const;

  Rank rank_;
  std::string name_;
  std::int64_t heads_;
  Linear qkv_, project_;
  Dropout dropout_;
};

}  // namespace aisc
