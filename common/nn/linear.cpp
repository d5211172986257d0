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

Tensor Linear::backward(Tensor dy, Saved& saved, const Pass& pass) {
  const auto span = rank_.trace.span("product", weight_.name);
  Tensor x = saved.pop();                                // (..., I)
  Tensor dx(x.shape(), x.dtype(), x.device());           // (..., I)
  ops::matmul(as_rows(dx), as_rows(dy), weight_.value);  // dx = dy W
  {
    const auto bias_span = rank_.trace.span("bias", bias_.name);
    ops::add_bias_backward(bias_.grad, as_rows(dy), bias_.next_grad());
  }
  weight_grad(pass, weight_, std::move(dy), std::move(x));  // dW += dy^T x
  return dx;
}

}  // namespace aisc
