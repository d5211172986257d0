#include "13_vision/pooling.h"

#include <fmt/format.h>

#include <algorithm>

#include "13_vision/of_type.h"
#include "common/core/error.h"
#include "common/ops/cpu/parallel.h"

namespace aisc {
namespace {

using Index = std::int64_t;

// Where in channel x the largest element of window (i, j) is, W elements a row; the first of equal
// ones. A NaN, which is not less or equal to anything, stays once it is found.
template <class T>
Index largest(const T* x, Index W, Index size, Index i, Index j) {
  Index best = i * size * W + j * size;
  T most = x[best];
  for (Index a = 0; a < size; ++a)
    for (Index b = 0; b < size; ++b) {
      const Index at = (i * size + a) * W + j * size + b;
      // Chosen, not jumped to: which is the largest cannot be foretold.
      const bool more = !(x[at] <= most) & (most == most);
      best = more ? at : best;
      most = more ? x[at] : most;
    }
  return best;
}

// A layer that only needs to know the shape of its x keeps that, in place of x.
void push_shape(Saved& saved, const Shape& shape, Device& device) {
  Tensor extents({shape.rank()}, DType::I64, device);
  for (int d = 0; d < shape.rank(); ++d) extents.data<Index>()[d] = shape[d];
  saved.push(std::move(extents));
}
Shape pop_shape(Saved& saved) {
  const Tensor extents = saved.pop();
  const auto e = extents.values<Index>();
  switch (e.size()) {
    case 2:
      return {e[0], e[1]};
    case 3:
      return {e[0], e[1], e[2]};
    default:
      return {e[0], e[1], e[2], e[3]};
  }
}

}  // namespace

Tensor Relu::forward(Tensor x, Saved& saved, const Pass& /*pass*/) const {
  const auto span = rank_.trace.span("relu", name_);
  Tensor y = output_like(x);
  ops::relu(y, x);
  saved.push(y.share());
  return y;
}

// y > 0 where x > 0, and nowhere else.
Tensor Relu::backward(Tensor dy, Saved& saved, const Pass& /*pass*/) {
  const auto span = rank_.trace.span("relu", name_);
  const Tensor y = saved.pop();
  Tensor dx = output_like(dy);
  ops::relu_backward(dx, dy, y);
  return dx;
}

Tensor MaxPool::forward(Tensor x, Saved& saved, const Pass& /*pass*/) const {
  const auto span = rank_.trace.span("pool", name_);
  require_images("max pool", x);
  const Index N = x.shape()[0], C = x.shape()[1], H = x.shape()[2], W = x.shape()[3];
  const Index size = size_, I = H / size, J = W / size;
  if (I < 1 || J < 1)
    fail(fmt::format("max pool: x is {}, expected {} or more rows and columns",
                     x.shape().to_string(), size));
  Tensor y({N, C, I, J}, x.dtype(), x.device());  // (N, C, I, J)
  of_type(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* const in = x.data<T>();
    T* const out = y.data<T>();
    cpu::parallel_rows(N * C, H * W, [=](Index channel) {
      const T* const from = in + channel * H * W;
      for (Index i = 0; i < I; ++i)
        for (Index j = 0; j < J; ++j)
          out[(channel * I + i) * J + j] = from[largest(from, W, size, i, j)];
    });
  });
  saved.push(std::move(x));
  return y;
}

Tensor MaxPool::backward(Tensor dy, Saved& saved, const Pass& /*pass*/) {
  const auto span = rank_.trace.span("pool", name_);
  const Tensor x = saved.pop();
  const Index H = x.shape()[2], W = x.shape()[3], size = size_, I = H / size, J = W / size;
  Tensor dx(x.shape(), x.dtype(), x.device());  // (N, C, H, W)
  of_type(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T *const in = x.data<T>(), *const from = dy.data<T>();
    T* const out = dx.data<T>();
    cpu::parallel_rows(x.shape()[0] * x.shape()[1], H * W, [=](Index channel) {
      T* const to = out + channel * H * W;
      std::fill_n(to, H * W, T{});
      for (Index i = 0; i < I; ++i)
        for (Index j = 0; j < J; ++j)
          to[largest(in + channel * H * W, W, size, i, j)] = from[(channel * I + i) * J + j];
    });
  });
  return dx;
}

Tensor GlobalAveragePool::forward(Tensor x, Saved& saved, const Pass& /*pass*/) const {
  const auto span = rank_.trace.span("pool", name_);
  require_images("global average pool", x);
  const Index N = x.shape()[0], C = x.shape()[1], P = x.shape()[2] * x.shape()[3];
  Tensor y({N, C}, x.dtype(), x.device());  // (N, C)
  of_type(x.dtype(), [&](auto type) {
    using T = decltype(type);
    for (Index channel = 0; channel < N * C; ++channel) {
      T sum = 0;
      for (Index p = 0; p < P; ++p) sum += x.data<T>()[channel * P + p];
      y.data<T>()[channel] = sum / static_cast<T>(P);
    }
  });
  push_shape(saved, x.shape(), x.device());
  return y;
}

Tensor GlobalAveragePool::backward(Tensor dy, Saved& saved, const Pass& /*pass*/) {
  const auto span = rank_.trace.span("pool", name_);
  Tensor dx(pop_shape(saved), dy.dtype(), dy.device());  // (N, C, H, W)
  const Index P = dx.shape()[2] * dx.shape()[3];
  of_type(dy.dtype(), [&](auto type) {
    using T = decltype(type);
    for (Index channel = 0; channel < dy.count(); ++channel)
      std::fill_n(dx.data<T>() + channel * P, P, dy.data<T>()[channel] / static_cast<T>(P));
  });
  return dx;
}

Tensor Flatten::forward(Tensor x, Saved& saved, const Pass& /*pass*/) const {
  push_shape(saved, x.shape(), x.device());
  const Index N = x.shape()[0];
  const Index width = [&] {
    Index product = 1;
    for (int d = 1; d < x.shape().rank(); ++d) product *= x.shape()[d];
    return product;
  }();
  return std::move(x).reshaped({N, width});
}

Tensor Flatten::backward(Tensor dy, Saved& saved, const Pass& /*pass*/) {
  return std::move(dy).reshaped(pop_shape(saved));
}

}  // namespace aisc
