#include "12_encoders/erf_gelu.h"

namespace aisc {

Tensor ErfGelu::forward(Tensor x, Saved& saved, const Pass& /*pass*/) const {
  const auto span = rank_.trace.span("gelu", name_);
  Tensor y(x.shape(), x.dtype(), x.device());
  ops::gelu(y, x, ops::Gelu::Erf);
  saved.push(std::move(x));
  return y;
}

Tensor ErfGelu::backward(Tensor dy, Saved& saved, const Pass& /*pass*/) {
  const auto span = rank_.trace.span("gelu", name_);
  const Tensor x = saved.pop();
  Tensor dx = output_like(dy);
  ops::gelu_backward(dx, dy, x, ops::Gelu::Erf);
  return dx;
}

}  // namespace aisc
