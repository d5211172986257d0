// Layer normalisation with a learnt scale and shift.
#pragma once

#include "common/nn/layer.h"

namespace aisc {

class LayerNorm final : public Layer {
 public:
  static constexpr double kEpsilon = 1e-5;  // GPT-2's

  // weight (width), 1; bias (width), 0. `epsilon` is added to the variance.
  LayerNorm(const Rank& rank, const std::string& name, std::int64_t width,
            double epsilon = kEpsilon);

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override { return {&weight_, &bias_}; }

 private:
  double epsilon_;
  Parameter weight_, bias_;
};

}  // namespace aisc
