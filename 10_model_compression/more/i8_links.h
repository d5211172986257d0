// A byte a number between the stages of a pipeline: activations forward, and their gradients back
// if they are to be, as whole numbers with a scale for each token.
#pragma once

#include "05_pipeline/link_code.h"

namespace aisc {

// A row x (C), a token's, becomes C bytes and an F32 behind them, the scale s:
//   s = max |x| / 127,  byte = 128 + x / s, rounded to nearest, ties to even;  x' = s (byte - 128).
// So |x - x'| <= s / 2, and a row of zeros stays one. A row that is not finite becomes NaN: what
// overflows is seen by the loss. Sent are C + 4 bytes a token, in place of 4 C of F32 or 2 C of
// BF16.
//
// x (..., C), any floating type, on the host's memory or a device without numbers. Throws Error for
// a GPU's.
class I8Rows final : public LinkCode {
 public:
  Shape coded(const Shape& shape) const override;
  Tensor encode(const Tensor& x) const override;
  Tensor decode(const Tensor& code, DType dtype) const override;
};

// What is coded. A stage computes with the activations that it has received, and sends the gradient
// of these: the one before takes it for that of what it has sent. The rounding itself has no
// gradient (straight_through.h).
enum class Coded { Activations, ActivationsAndGradients };
LinkCodes i8_links(Coded what);

}  // namespace aisc
