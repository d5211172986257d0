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
  std::vector<Parameter*> parameters() override { return {&weight_, &bias_}; }

 private:
  Rank rank_;
  Parameter weight_, bias_;
};

}  // namespace aisc
