// A layer of filters: its output has a channel for each.
#pragma once

#include "06_tensor_parallel/more/convolution.h"
#include "common/nn/layer.h"

namespace aisc {

struct FilterSizes {
  std::int64_t in, out;   // channels C and F
  std::int64_t size = 3;  // A and B
  std::int64_t stride = 1;
  // A norm behind the layer takes its mean away, and a bias with it.
  enum class Bias { Yes, No } bias = Bias::Yes;

  std::int64_t padding() const { return size / 2; }  // stride 1 keeps the size, of odd filters
  ConvolutionOptions options() const {
    return {stride, stride, {padding(), padding(), padding(), padding()}};
  }
};

class ConvolutionLayer final : public Layer {
 public:
  // weight (F, C, A, B), drawn N(0, 2 / (C A B)), so that signals keep their size through ReLUs (He
  // et al., "Delving deep into rectifiers", 2015, section 2.2); bias (F), 0.
  ConvolutionLayer(const Rank& rank, const std::string& name, const FilterSizes& sizes);

  // (N, C, H, W) -> (N, F, I, J), of which I = (H + 2 padding - size) / stride + 1, and J alike.
  // N may be 0. Throws Error for an x of another kind (patch_sizes).
  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override;

 private:
  FilterSizes sizes_;
  Parameter weight_, bias_;
};

}  // namespace aisc
