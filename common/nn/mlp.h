// The two-layer perceptron of a transformer block.
#pragma once

#include "common/nn/dropout.h"
#include "common/nn/linear.h"

namespace aisc {

// project(gelu(fc(x))): (..., C) -> (..., hidden) -> (..., C). The gelu is part of the products on
// both sides, forward of the first and backward of the second.
class Mlp final : public Layer {
 public:
  struct Options {
    std::int64_t width, hidden;
    double residual_stddev = 0.02;  // of the second projection
    double dropout = 0;             // on the output
    std::uint64_t seed = 0;
  };
  Mlp(const Rank& rank, const std::string& name, const Options& options);

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override;

 private:
  Linear fc_;
  Linear project_;
  Dropout dropout_;
};

}  // namespace aisc
