// What attention replaced: a layer that reads a sequence one element after another, and has only
// its state to remember what it has read.
#pragma once

#include <string>
#include <vector>

#include "common/nn/layer.h"

namespace aisc {

// Between two elements of a sequence, or their gradients. Empty: all 0.
struct LstmState {
  Tensor hidden, cell;  // (B, H) each
};

// Long short-term memory (Hochreiter and Schmidhuber, "Long short-term memory", Neural Computation
// 9(8), 1997; with the forget gate of Gers, Schmidhuber and Cummins, 2000). Of x (B, T, C), for
// t = 0, 1, ... with s(z) = 1 / (1 + exp(-z)):
//
//   i, f, g, o = four times H columns of  x_t weight_x^T + h_{t-1} weight_h^T + bias
//   c_t = s(f) c_{t-1} + s(i) tanh(g)
//   h_t = s(o) tanh(c_t)                                                        y (B, T, H)
//
// The order of the gates is PyTorch's, whose two biases are one here: their sum. Products of x are
// one product for all t; each product of h waits for the one before it. So 2 B T 4 H (C + H) FLOPs
// of products, and a chain of T of them.
//
// On the CPU and on a device without numbers; F32 or F64. Errors: another device or type, an x
// without elements in time, a state of another shape.
class Lstm final : public Layer {
 public:
  // weight_x (4H, C) and weight_h (4H, H), of a variance of 1 / 3H as PyTorch draws them; bias
  // (4H), 0. Their names end in .input, .hidden and .bias.
  Lstm(const Rank& rank, const std::string& name, std::int64_t in, std::int64_t hidden);

  // From a state of zeros; nobody asks for the last one.
  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override { return {&input_, &hidden_, &bias_}; }

  // From `first` to *last, the state behind the last element; null: nobody asks.
  Tensor forward_from(const LstmState& first, Tensor x, LstmState* last, Saved& saved) const;
  // dy (B, T, H), empty: 0 everywhere; dlast of the last state. Returns dx and sets dfirst. The
  // gradient goes back through time: that of h_t has a part from y_t and one from t + 1.
  Tensor backward_from(const Tensor& dy, const LstmState& dlast, LstmState& dfirst, Saved& saved);

 private:
  std::int64_t in_, size_;
  Parameter input_, hidden_, bias_;
};

}  // namespace aisc
