// The linear layer: y = x weight^T + bias.
#pragma once

#include "common/nn/layer.h"

namespace aisc {

class Linear final : public Layer {
 public:
  // weight (out, in), drawn N(0, stddev); bias (out), 0.
  Linear(const Rank& rank, const std::string& name, std::int64_t in, std::int64_t out,
         double stddev = 0.02);

  Tensor forward(Tensor x, Saved& saved,
                 const Pass& pass) const override;  // (..., in) -> (..., out)
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;

  // The same with a GELU behind this layer, or in front of it, which GPUs compute in the product:
  // gelu(x weight^T + bias); pushes x, then what gelu was given.
  Tensor forward_then_gelu(Tensor x, Saved& saved) const;
  // This layer's x was gelu(z) of the layer that pushed z: pops x and z, returns dz.
  Tensor backward_through_gelu(Tensor dy, Saved& saved, const Pass& pass);

  std::vector<Parameter*> parameters() override { return {&weight_, &bias_}; }

 private:
  Tensor weights_backward(Tensor dy, Tensor x, Tensor dx, const Pass& pass);

  Rank rank_;
  Parameter weight_, bias_;
};

}  // namespace aisc
