#include "06_tensor_parallel/more/convolution.h"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <vector>

#include "common/ops/cpu/parallel.h"
#include "common/ops/ops_checks.h"

namespace aisc {
namespace {

using Index = std::int64_t;
using One = std::integral_constant<Index, 1>;  // a step that the compiler knows

// x (N, C, rows.size, columns.size), y (N, F, rows.outputs, columns.outputs)
struct Sizes {
  Index N, C, F;
  ConvolutionAxis rows, columns;

  // Where a row begins: of x, of y, of the filters.
  Index x_row(Index n, Index c, Index h) const {
    return ((n * C + c) * rows.size + h) * columns.size;
  }
  Index y_row(Index n, Index f, Index i) const {
    return ((n * F + f) * rows.outputs + i) * columns.outputs;
  }
  Index taps(Index f, Index c, Index a) const {
    return ((f * C + c) * rows.filter + a) * columns.filter;
  }
  double flops() const {
    return 2.0 * static_cast<double>(N * F * rows.outputs * columns.outputs) *
           static_cast<double>(C * rows.filter * columns.filter);
  }
};

Sizes check(const char* operation, const char* x_name, const ConstView& x, const char* y_name,
            const ConstView& y, const char* filters_name, const ConstView& filters,
            const ConvolutionOptions& o) {
  const ops::Checks checks(operation, x_name, x);
  if (x.dtype() != DType::F32 && x.dtype() != DType::F64)
    fail(fmt::format("{}: {} is {}, expected F32 or F64", operation, x_name, name_of(x.dtype())));
  if (x.device().kind() == DeviceKind::Cuda)
    fail(fmt::format("{}: {} is on {}, where it is not available, expected the CPU", operation,
                     x_name, x.device().name()));
  checks.rank(x_name, x, 4);
  checks.rank(filters_name, filters, 4);
  const auto at_least_1 = [&](const char* name, Index a, Index b) {
    checks.number(name, static_cast<double>(std::min(a, b)), a >= 1 && b >= 1, "at least 1");
  };
  at_least_1("a stride", o.row_stride, o.column_stride);
  at_least_1("the filter's size", filters.shape()[2], filters.shape()[3]);
  const Index N = x.shape()[0], C = x.shape()[1], F = filters.shape()[0];
  const auto axis = [&](int d, Index stride, Index before, Index after) {
    const Index elements = x.shape()[d], taps = filters.shape()[d];
    return ConvolutionAxis{elements, taps, stride, before,
                           convolved_size(elements, taps, stride, before, after)};
  };
  const ConvolutionAxis rows = axis(2, o.row_stride, o.padding.top, o.padding.bottom);
  const ConvolutionAxis columns = axis(3, o.column_stride, o.padding.left, o.padding.right);
  checks.is(filters_name, filters, {F, C, rows.filter, columns.filter}, x.dtype());
  checks.is(y_name, y, {N, F, rows.outputs, columns.outputs}, x.dtype());
  return {N, C, F, rows, columns};
}

// Charges the device. False where there are no numbers to compute.
bool charge(const char* operation, const Sizes& s, const ConstView& out, std::size_t bytes) {
  Device& device = out.device();
  if (device.wants_costs())
    device.charge({.operation = operation,
                   .flops = s.flops(),
                   .bytes = static_cast<double>(bytes),
                   .dtype = out.dtype(),
                   .product = true});
  return device.kind() != DeviceKind::Meta;
}

template <class F>
void of_type(DType dtype, F f) {
  return dtype == DType::F64 ? f(double{}) : f(float{});
}

// to[k * to_step] += weight from[k * from_step]
template <class T>
void add(T* to, Index to_step, const T* from, Index from_step, T weight, Index count) {
  if (to_step == 1 && from_step == 1) {
#pragma omp simd
    for (Index k = 0; k < count; ++k) to[k] += weight * from[k];
  } else {
    for (Index k = 0; k < count; ++k) to[k * to_step] += weight * from[k * from_step];
  }
}

template <class T, class Step>
T dot(const T* a, const T* b, Step b_step, Index count) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (Index k = 0; k < count; ++k) sum += a[k] * b[k * b_step];
  return sum;
}

}  // namespace

void convolution(View y, ConstView x, ConstView filters, const ConvolutionOptions& options) {
  const Sizes s = check("convolution", "x", x, "y", y, "filters", filters, options);
  if (!charge("convolution", s, y, y.bytes() + x.bytes() + filters.bytes())) return;
  of_type(y.dtype(), [&](auto type) {
    using T = decltype(type);
    T* const out = y.data<T>();
    const T *const in = x.data<T>(), *const weights = filters.data<T>();
    const Index I = s.rows.outputs, J = s.columns.outputs, A = s.rows.filter, B = s.columns.filter;
    cpu::parallel_rows(s.N * s.F * I, J * s.C * A * B, [=](Index row) {
      const Index n = row / I / s.F, f = row / I % s.F, i = row % I;
      T* const to = out + row * J;
      std::fill_n(to, J, T{});
      // Row i of y is a sum over channels, and over the filter's rows a, each of which reads one
      // row h of x. Of its columns j only those are visited in which tap b reads an element that is
      // there.
      for (Index c = 0; c < s.C; ++c)
        for (Index a = 0; a < A; ++a) {
          const Index h = s.rows.read(i, a);
          if (h < 0 || h >= s.rows.size) continue;
          const T *const from = in + s.x_row(n, c, h), *const weight = weights + s.taps(f, c, a);
          for (Index b = 0; b < B; ++b) {
            const Index j = s.columns.first(b);
            add(to + j, 1, from + s.columns.read(j, b), s.columns.stride, weight[b],
                s.columns.last(b) - j);
          }
        }
    });
  });
}

void convolution_input_gradient(View dx, ConstView dy, ConstView filters,
                                const ConvolutionOptions& options) {
  const char* const name = "convolution_input_gradient";
  const Sizes s = check(name, "dx", dx, "dy", dy, "filters", filters, options);
  if (!charge(name, s, dx, dx.bytes() + dy.bytes() + filters.bytes())) return;
  of_type(dx.dtype(), [&](auto type) {
    using T = decltype(type);
    T* const out = dx.data<T>();
    const T *const in = dy.data<T>(), *const weights = filters.data<T>();
    const Index H = s.rows.size, W = s.columns.size, A = s.rows.filter, B = s.columns.filter;
    cpu::parallel_rows(s.N * s.C * H, W * s.F * A * B, [=](Index row) {
      const Index n = row / H / s.C, c = row / H % s.C, h = row % H;
      T* const to = out + row * W;
      std::fill_n(to, W, T{});
      // The same products, found from the other end: row h of x was read by the row i of y, if any,
      // that tap a reaches from there. So each thread writes rows of its own.
      for (Index f = 0; f < s.F; ++f)
        for (Index a = 0; a < A; ++a) {
          const Index i = s.rows.output_of(h, a);
          if (i < 0) continue;
          const T *const from = in + s.y_row(n, f, i), *const weight = weights + s.taps(f, c, a);
          for (Index b = 0; b < B; ++b) {
            const Index j = s.columns.first(b);
            add(to + s.columns.read(j, b), s.columns.stride, from + j, 1, weight[b],
                s.columns.last(b) - j);
          }
        }
    });
  });
}

void convolution_filter_gradient(View dfilters, ConstView dy, ConstView x,
                                 const ConvolutionOptions& options, ops::Into into) {
  const char* const name = "convolution_filter_gradient";
  const Sizes s = check(name, "x", x, "dy", dy, "dfilters", dfilters, options);
  const bool adds = into == ops::Into::Accumulate;
  const std::size_t moved = dy.bytes() + x.bytes() + (adds ? 2 : 1) * dfilters.bytes();
  if (!charge(name, s, dfilters, moved)) return;
  of_type(x.dtype(), [&](auto type) {
    using T = decltype(type);
    T* const out = dfilters.data<T>();
    const T *const of_y = dy.data<T>(), *const of_x = x.data<T>();
    const Index A = s.rows.filter, B = s.columns.filter, I = s.rows.outputs;
    const Index step = s.columns.stride;
    cpu::parallel_rows(s.F * s.C * A, s.N * I * s.columns.outputs * B, [=](Index row) {
      const Index f = row / A / s.C, c = row / A % s.C, a = row % A;
      std::vector<double> sums(static_cast<std::size_t>(B));
      // A tap's gradient is one long sum over samples and outputs, in F64.
      for (Index n = 0; n < s.N; ++n)
        for (Index i = s.rows.first(a); i < s.rows.last(a); ++i) {
          const T* const left = of_y + s.y_row(n, f, i);
          const T* const right = of_x + s.x_row(n, c, s.rows.read(i, a));
          for (Index b = 0; b < B; ++b) {
            const Index j = s.columns.first(b), count = s.columns.last(b) - j;
            const T* const x_b = right + s.columns.read(j, b);
            sums[static_cast<std::size_t>(b)] += static_cast<double>(
                step == 1 ? dot(left + j, x_b, One(), count) : dot(left + j, x_b, step, count));
          }
        }
      for (Index b = 0; b < B; ++b) {
        T& to = out[row * B + b];
        const double before = adds ? static_cast<double>(to) : 0.0;
        to = static_cast<T>(before + sums[static_cast<std::size_t>(b)]);
      }
    });
  });
}

}  // namespace aisc
