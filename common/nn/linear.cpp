#include "common/nn/linear.h"

namespace aisc {

Linear::Linear(const Rank& rank, const std::string& name, std::int64_t in, std::int64_t out,
               double stddev, Gelu gelu)
    : Layer(rank, name),
      gelu_(gelu),
      weight_(whole_parameter(name + ".weight", {out, in}, Init::normal(stddev), true)),
      bias_(whole_parameter(name + ".bias", {out}, Init::constant(0), false)) {}

Tensor Linear::forward(Tensor x, Saved& saved, const Pass& /*pass*/) const {
  const auto span = rank_.trace.span("product", weight_.name);
  const Shape shape = x.shape().with(-1, weight_.shape[0]);
  const bool gelu = gelu_ == Gelu::Behind;
  Tensor z = gelu ? Tensor(shape, x.dtype(), x.device()) : Tensor();  // (..., O)
  Tensor y(shape, x.dtype(), x.device());                             // (..., O)
  ops::matmul(as_rows(y), as_rows(x), weight_.value(),
              {.transpose = ops::Transpose::Second,
               .bias = bias_.value(),
               .before_gelu = gelu ? as_rows(z) : View()});
  saved.push(std::move(x));
  if (gelu) saved.push(std::move(z));
  return y;
}

Tensor Linear::backward(Tensor dy, Saved& saved, const Pass& pass) {
  const auto span = rank_.trace.span("product", weight_.name);
  Tensor x = saved.pop();                                           // (..., I)
  const Tensor z = gelu_ == Gelu::Before ? saved.pop() : Tensor();  // (..., I)
  Tensor dx(x.shape(), x.dtype(), x.device());                      // (..., I)
  ops::matmul(as_rows(dx), as_rows(dy), weight_.value(),
              {.gelu_of = z ? as_rows(z) : View()});  // dx = dy W, or dy W gelu'(z)
  {
    const auto bias_span = rank_.trace.span("bias", bias_.name);
    ops::add_bias_backward(bias_.grad(), as_rows(dy), bias_.next_grad());
  }
  weight_grad(pass, weight_, std::move(dy), std::move(x));  // dW += dy^T x
  return dx;
}

}  // namespace aisc
