// The loss of a language model: the negative log-likelihood of the next token.
#pragma once

#include "common/nn/model.h"

namespace aisc {

// Over logits (..., V) and targets (...), I32, -1 for none. Kept: the logits, which become their
// own gradient in place, and one number per token.
class CrossEntropy final : public Loss {
 public:
  // Only the first `classes` columns of the logits are classes, the rest is padding. Labels are
  // smoothed (ops::cross_entropy) in training alone: outside it the loss is the likelihood's, which
  // compares models whatever they were trained by. Backward is training's.
  CrossEntropy(const Rank& rank, std::int64_t classes, double smoothing = 0)
      : rank_(rank), classes_(classes), smoothing_(smoothing) {}

  double forward(Tensor logits, const Tensor& targets, Saved& saved,
                 const Pass& pass) const override;
  Tensor backward(Saved& saved, double factor) const override;

 private:
  Rank rank_;
  std::int64_t classes_;
  double smoothing_;
};

}  // namespace aisc
