// The loss of a language model: the negative log-likelihood of the next token.
#pragma once

#include "common/nn/layer.h"

namespace aisc {

// Not a Layer: it takes targets and returns a number. Kept: the logits, which become their own
// gradient in place, and one number per token.
class CrossEntropy {
 public:
  // Only the first `classes` columns of the logits are classes, the rest is padding.
  CrossEntropy(const Rank& rank, std::int64_t classes) : rank_(rank), classes_(classes) {}

  // Sum of the losses (nats) over logits (..., V) and targets (...), I32, -1 for none. The caller
  // divides: by the tokens of the global batch, which a rank or a micro-batch sees only a part of.
  double forward(Tensor logits, const Tensor& targets, Saved& saved) const;
  // The gradient of factor * (that sum) with respect to the logits.
  Tensor backward(Saved& saved, double factor) const;

 private:
  Rank rank_;
  std::int64_t classes_;
};

}  // namespace aisc
