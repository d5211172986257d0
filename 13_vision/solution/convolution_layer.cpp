#include "13_vision/convolution_layer.h"

#include <cmath>

#include "13_vision/image_columns.h"
#include "13_vision/of_type.h"
#include "common/ops/cpu/parallel.h"

namespace aisc {
namespace {

using Index = std::int64_t;

// Swaps the first two of three dimensions: y (N, F, P) of product (F, N, P), and back. A product
// has the images of a batch side by side, a layer has the channels of an image together.
void swap_first_two(View out, ConstView in, Index first, Index second) {
  const Index P = first * second == 0 ? 0 : in.count() / first / second;
  if (P > 0)
    ops::permute(out.reshaped({second, first, P}), in.reshaped({first, second, P}), {1, 0, 2});
}

// y (N, F, I, J) gets bias[f] on each of filter f's outputs.
void add_channel_bias(View y, ConstView bias) {
  of_type(y.dtype(), [&](auto type) {
    using T = decltype(type);
    T* const out = y.data<T>();
    const T* const b = bias.data<T>();
    const Index F = bias.count(), P = y.shape()[2] * y.shape()[3];
    cpu::parallel_rows(y.shape()[0] * F, P, [=](Index channel) {
      for (Index p = 0; p < P; ++p) out[channel * P + p] += b[channel % F];
    });
  });
}

// dbias (F) = [dbias +] the sum of row f of dproduct (F, N I J), in F64.
void add_row_sums(View dbias, ConstView dproduct, ops::Into into) {
  of_type(dproduct.dtype(), [&](auto type) {
    using T = decltype(type);
    T* const out = dbias.data<T>();
    const T* const in = dproduct.data<T>();
    const Index columns = dproduct.shape()[1];
    cpu::parallel_rows(dbias.count(), columns, [=](Index f) {
      double sum = into == ops::Into::Accumulate ? static_cast<double>(out[f]) : 0.0;
      for (Index p = 0; p < columns; ++p) sum += static_cast<double>(in[f * columns + p]);
      out[f] = static_cast<T>(sum);
    });
  });
}

}  // namespace

ConvolutionLayer::ConvolutionLayer(const Rank& rank, const std::string& name,
                                   const FilterSizes& sizes)
    : Layer(rank, name),
      sizes_(sizes),
      weight_(whole_parameter(
          name + ".weight", {sizes.out, sizes.in, sizes.size, sizes.size},
          Init::normal(std::sqrt(2.0 / static_cast<double>(sizes.in * sizes.size * sizes.size))),
          true)),
      bias_(whole_parameter(name + ".bias", {sizes.out}, Init::constant(0), false)) {}

std::vector<Parameter*> ConvolutionLayer::parameters() {
  if (sizes_.bias == FilterSizes::Bias::No) return {&weight_};
  return {&weight_, &bias_};
}

Tensor ConvolutionLayer::forward(Tensor x, Saved& saved, const Pass& /*pass*/) const {
  const auto span = rank_.trace.span("product", weight_.name);
  const PatchSizes s = patch_sizes("convolution layer", x, weight_.shape, sizes_.options());
  const Index N = x.shape()[0], F = sizes_.out;
  Tensor y({N, F, s.rows.outputs, s.columns.outputs}, x.dtype(), x.device());  // (N, F, I, J)
  {
    Tensor patches({s.terms(), N * s.outputs()}, x.dtype(), x.device(), Purpose::Workspace);
    Tensor product({F, N * s.outputs()}, x.dtype(), x.device(), Purpose::Workspace);
    image_to_columns(patches, x, s);
    ops::matmul(product, weight_.value().reshaped({F, s.terms()}), patches);
    swap_first_two(y, product, F, N);
  }
  if (sizes_.bias == FilterSizes::Bias::Yes) add_channel_bias(y, bias_.value());
  saved.push(std::move(x));
  return y;
}

// With y = W P of the patches P:  dW = dy P^T,  dP = W^T dy. The patches are made once more: kept,
// they would be nine times x.
Tensor ConvolutionLayer::backward(Tensor dy, Saved& saved, const Pass& /*pass*/) {
  const auto span = rank_.trace.span("product", weight_.name);
  const Tensor x = saved.pop();  // (N, C, H, W)
  const PatchSizes s = patch_sizes("convolution layer", x, weight_.shape, sizes_.options());
  const Index N = x.shape()[0], F = sizes_.out;
  const Shape patches_shape{s.terms(), N * s.outputs()};
  Tensor patches(patches_shape, x.dtype(), x.device(), Purpose::Workspace);
  Tensor dproduct({F, N * s.outputs()}, x.dtype(), x.device(), Purpose::Workspace);
  swap_first_two(dproduct, dy, N, F);
  image_to_columns(patches, x, s);
  ops::matmul(weight_.grad().reshaped({F, s.terms()}), dproduct, patches,
              {.transpose = ops::Transpose::Second, .into = weight_.next_grad()});
  if (sizes_.bias == FilterSizes::Bias::Yes)
    add_row_sums(bias_.grad(), dproduct, bias_.next_grad());
  ops::matmul(patches, weight_.value().reshaped({F, s.terms()}), dproduct,
              {.transpose = ops::Transpose::First});  // now dP
  Tensor dx(x.shape(), x.dtype(), x.device());        // (N, C, H, W)
  columns_to_image(dx, patches, s);
  return dx;
}

}  // namespace aisc
