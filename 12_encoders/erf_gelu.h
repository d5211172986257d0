// GELU as BERT has it: x Phi(x) by Gauss's error function (Hendrycks and Gimpel, "Gaussian error
// linear units", 2016), in place of the tanh form that GPT-2 nears it by.
#pragma once

#include <string>
#include <utility>

#include "common/nn/layer.h"

namespace aisc {

// Of any shape. Keeps its input.
class ErfGelu final : public Layer {
 public:
  ErfGelu(const Rank& rank, std::string name) : Layer(rank, std::move(name)) {}

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
};

}  // namespace aisc
