// A linear layer whose three products multiply codes of F8: what f8_training() makes of a plain one
// on a GPU, where a tensor has one scale.
#pragma once

#include <memory>
#include <vector>

#include "10_model_compression/more/f8_matmul.h"
#include "10_model_compression/more/f8_training.h"
#include "common/nn/linear.h"

namespace aisc {

//   y = x' W'^T + b   dx = dy' W'   dW += dy'^T x'
//
// It computes what F8Layer around a Linear does, with the sums in another order, and differs in two
// things: x' is kept as codes, a byte a number; and the gradient of b sums dy, not dy'.
//
// f8_matmul() wants the numbers that are summed side by side. Of y these are the columns of x' and
// W', as they are; of dx the rows of W', and of dW the rows of both dy' and x'. So there are three
// transposed matrices of codes in a step. That is what Transformer Engine does on Hopper, too: its
// kernels write a matrix and its transpose in one pass as they cast; here the transpose is a pass
// of its own over the codes.
class F8Linear final : public Layer {
 public:
  // inner: a Linear, for its parameters. Options: a scale for each tensor.
  F8Linear(const Rank& rank, std::unique_ptr<Layer> inner, Linear::Gelu gelu,
           const F8Options& options);

  // What F8Linear can take the place of, on its device: a whole Linear, split over no ranks.
  static bool replaces(const Rank& rank, const Layer& inner, const F8Options& options);

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override { return inner_->parameters(); }

 private:
  F8Tensor coded(ConstView x, const F8Kind& kind, const Pass& pass) const;

  const std::unique_ptr<Layer> inner_;
  const Linear::Gelu gelu_;
  const F8Scale scale_;
  Parameter &weight_, &bias_;
  F8Kind x_, of_weight_, dy_;
};

}  // namespace aisc
