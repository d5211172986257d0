// A transformer block, pre-norm: x + attention(norm(x)), then x + mlp(norm(x)).
#pragma once

#include "common/nn/attention.h"
#include "common/nn/layer_norm.h"
#include "common/nn/mlp.h"

namespace aisc {

class Block final : public Layer {
 public:
  struct Options {
    std::int64_t width, heads;
    double residual_stddev = 0.02;
    double dropout = 0;
    std::uint64_t seed = 0;
  };
  Block(const Rank& rank, const std::string& name, const Options& options);

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;  // (B, T, C)
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override;

 private:
  Tensor residual(Tensor branch, const Tensor& trunk) const;

  Rank rank_;
  std::string name_;
  LayerNorm norm1_;
  CausalSelfAttention attention_;
  LayerNorm norm2_;
  Mlp mlp_;
};

}  // namespace aisc
