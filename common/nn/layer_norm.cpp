#include "common/nn/layer_norm.h"

#include <utility>

namespace aisc {

LayerNorm::LayerNorm(const Rank& rank, const std::string& name, std::int64_t width, double epsilon)
    : Layer(rank, name),
      epsilon_(epsilon),
      weight_(whole_parameter(name + ".weight", {width}, Init::constant(1), false)),
      bias_(whole_parameter(name + ".bias", {width}, Init::constant(0), false)) {}

Tensor LayerNorm::forward(Tensor x, Saved& saved, const Pass& /*pass*/) const {
  const auto span = rank_.trace.span("layer norm", weight_.name);
  const DType statistics = statistics_of(x.dtype());
  Tensor y(x.shape(), x.dtype(), x.device());               // (..., C)
  Tensor mean({x.shape().rows()}, statistics, x.device());  // (N)
  Tensor rstd({x.shape().rows()}, statistics, x.device());  // (N)
  ops::layer_norm(as_rows(y), mean, rstd, as_rows(x), weight_.value(), bias_.value(), epsilon_);
  saved.push(std::move(x));
  saved.push(std::move(mean));
  saved.push(std::move(rstd));
  return y;
}

Tensor LayerNorm::backward(Tensor dy, Saved& saved, const Pass& /*pass*/) {
  const auto span = rank_.trace.span("layer norm", weight_.name);
  const Tensor rstd = saved.pop(), mean = saved.pop(), x = saved.pop();
  const ops::Into into = weight_.next_grad();
  bias_.next_grad();  // written together with the weight's
  Tensor dx = output_like(dy);
  ops::layer_norm_backward(as_rows(dx), weight_.grad(), bias_.grad(), as_rows(dy), as_rows(x),
                           weight_.value(), mean, rstd, into);
  return dx;
}

}  // namespace aisc
