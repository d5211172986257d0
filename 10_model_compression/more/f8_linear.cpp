#include "10_model_compression/more/f8_linear.h"

#include <utility>

namespace aisc {

F8Linear::F8Linear(const Rank& rank, std::unique_ptr<Layer> inner, Linear::Gelu gelu,
                   const F8Options& options)
    : Layer(rank, inner->name()),
      inner_(std::move(inner)),
      gelu_(gelu),
      scale_(options.scale),
      weight_(*inner_->parameters()[0]),
      bias_(*inner_->parameters()[1]),
      x_{options.values, kWholeTensor, LargestOfSteps(options.history)},
      of_weight_{options.values, kWholeTensor, LargestOfSteps(options.history)},
      dy_{options.gradients, kWholeTensor, LargestOfSteps(options.history)} {}

bool F8Linear::replaces(const Rank& rank, const Layer& inner, const F8Options& options) {
  return options.scale != F8Scale::Block && rank.device.kind() == DeviceKind::Cuda &&
         dynamic_cast<const Linear*>(&inner) != nullptr;
}

F8Tensor F8Linear::coded(ConstView x, const F8Kind& kind, const Pass& pass) const {
  const auto span = rank_.trace.span("rounding", name_);
  if (scale_ == F8Scale::Delayed && pass.training)
    return to_f8(x, kind.format, kind.delayed_scale(x, pass.step));
  return to_f8(x, kind.format, kWholeTensor);
}

Tensor F8Linear::forward(Tensor x, Saved& saved, const Pass& pass) const {
  F8Tensor x8 = coded(as_rows(x), x_, pass);
  const F8Tensor w8 = coded(weight_.value(), of_weight_, pass);
  const auto span = rank_.trace.span("product", weight_.name);
  Tensor z(x.shape().with(-1, weight_.shape[0]), x.dtype(), x.device());  // (..., O)
  f8_matmul(as_rows(z), x8, w8, ops::Into::Overwrite, bias_.value());
  saved.push(std::move(x8.codes));
  saved.push(std::move(x8.scales));
  if (gelu_ != Linear::Gelu::Behind) return z;
  Tensor y(z.shape(), z.dtype(), z.device());
  ops::gelu(y, z);
  saved.push(std::move(z));  // for the layer behind, as Linear does
  return y;
}

Tensor F8Linear::backward(Tensor dy, Saved& saved, const Pass& pass) {
  Tensor scale = saved.pop(), codes = saved.pop();
  const F8Tensor x8{x_.format, kWholeTensor, std::move(codes), std::move(scale)};
  const Tensor z = gelu_ == Linear::Gelu::Before ? saved.pop() : Tensor();  // (..., I)
  const F8Tensor dy8 = coded(as_rows(dy), dy_, pass);
  const F8Tensor w8 = coded(weight_.value(), of_weight_, pass);
  const auto span = rank_.trace.span("product", weight_.name);
  Tensor dx(dy.shape().with(-1, weight_.shape[1]), dy.dtype(), dy.device());  // (..., I)
  f8_matmul(as_rows(dx), dy8, transposed(w8));
  if (z) ops::gelu_backward(dx, dx, z);
  ops::add_bias_backward(bias_.grad(), as_rows(dy), bias_.next_grad());

  // What waits holds codes, a byte a number.
  auto held = std::make_shared<std::pair<F8Tensor, F8Tensor>>(transposed(dy8), transposed(x8));
  const auto product = [this, held] {
    f8_matmul(weight_.grad(), held->first, held->second, weight_.next_grad());
  };
  pass.deferred ? pass.deferred->push(product) : product();
  return dx;
}

}  // namespace aisc
