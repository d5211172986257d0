// A transformer block, pre-norm: x + attention(norm(x)), then x + mlp(norm(x)).
#pragma once

#include "common/nn/sequence.h"

namespace aisc {

class Block final : public Layer {
 public:
  // Of a branch each: a norm and an attention, a norm and an MLP.
  Block(const Rank& rank, const std::string& name, std::unique_ptr<Layer> norm1,
        std::unique_ptr<Layer> attention, std::unique_ptr<Layer> norm2, std::unique_ptr<Layer> mlp)
      : Layer(rank, name),
        attention_(rank, name + ".attention", listed(std::move(norm1), std::move(attention))),
        mlp_(rank, name + ".mlp", listed(std::move(norm2), std::move(mlp))) {}

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;  // (B, T, C)
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override;
  std::vector<Parameter*> borrows() override;

 private:
  Tensor residual(Tensor branch, const Tensor& trunk) const;

  Sequence attention_, mlp_;
};

}  // namespace aisc
