#include "common/nn/linear.h"

#include <utility>

namespace aisc {

Linear::Linear(const Rank& rank, const std::string& name, std::int64_t in, std::int64_t out,
               double stddev)
    : rank_(rank),
      weight_(whole_parameter(name + ".weight", {out, in}, Init::normal(stddev), true)),
      bias_(whole_parameter(name + ".bias", {out}, Init::constant(0), false)) {}

Tensor Linear::forward(Tensor x, Saved& saved, const Pass& /*pass*/) const {
  const auto span = rank_.trace.span("product", weight_.name);
  Tensor y(x.shape().with(-1, weight_.shape[0]), x.dtype(), x.device());  // (..., O)
  ops::matmul(as_rows(y), as_rows(x), weight_.value,
              {.transpose = ops::Transpose::Second, .bias = bias_.value});
  saved.push(std::move(x));
  return y;
}

Tensor Linear::forward_then_gelu(Tensor x, Saved& saved) const {
  const auto span = rank_.trace.span("product", weight_.name);
  Tensor z(x.shape().with(-1, weight_.shape[0]), x.dtype(), x.device());  // (..., O)
  Tensor y(z.shape(), x.dtype(), x.device());                             // (..., O)
  ops::matmul(
      as_rows(y), as_rows(x), weight_.value,
      {.transpose = ops::Transpose::Second, .bias = bias_.value, .before_gelu = as_rows(z)});
  saved.push(std::move(x));
  saved.push(std::move(z));
  return y;
}

Tensor Linear::backward(Tensor dy, Saved& saved, const Pass& pass) {
  const auto span = rank_.trace.span("product", weight_.name);
  Tensor x = saved.pop();                                // (..., I)
  Tensor dx(x.shape(), x.dtype(), x.device());           // (..., I)
  ops::matmul(as_rows(dx), as_rows(dy), weight_.value);  // dx = dy W
  return weights_backward(std::move(dy), std::move(x), std::move(dx), pass);
}

Tensor Linear::backward_through_gelu(Tensor dy, Saved& saved, const Pass& pass) {
  const auto span = rank_.trace.span("product", weight_.name);
  Tensor x = saved.pop(), z = saved.pop();                                        // (..., I)
  Tensor dz(x.shape(), x.dtype(), x.device());                                    // (..., I)
  ops::matmul(as_rows(dz), as_rows(dy), weight_.value, {.gelu_of = as_rows(z)});  // dy W gelu'(z)
  return weights_backward(std::move(dy), std::move(x), std::move(dz), pass);
}

// The gradients of weight and bias; hands dx through.
Tensor Linear::weights_backward(Tensor dy, Tensor x, Tensor dx, const Pass& pass) {
  {
    const auto bias_span = rank_.trace.span("bias", bias_.name);
    ops::add_bias_backward(bias_.grad, as_rows(dy), bias_.next_grad());
  }
  weight_grad(pass, weight_, std::move(dy), std::move(x));  // dW += dy^T x
  return dx;
}

}  // namespace aisc
