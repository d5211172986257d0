// Operations on rows: layer norm, softmax, sums. A row is read from memory once; further passes
// over it find it in cache.
#include <algorithm>
#include <cmath>

#include "common/ops/cpu/column_sums.h"
#include "common/ops/cpu/kernels.h"
#include "common/ops/cpu/parallel.h"
#include "common/ops/cpu/reduce.h"
#include "common/ops/cpu/vector_math.h"

namespace aisc::cpu {
namespace {

// dx = rstd (g - mean(g) - xhat mean(g xhat)) with g = dy weight and xhat = (x - mean) rstd.
// Adds the row's dy xhat to dweight and dy to dbias.
template <class T, class S>
void layer_norm_row_backward(T* dx, S* dweight, S* dbias, const T* dy, const T* x, const T* weight,
                             S mean, S rstd, std::int64_t C) {
  S sum_g = 0, sum_gx = 0;
#pragma omp simd reduction(+ : sum_g, sum_gx)
  for (std::int64_t c = 0; c < C; ++c) {
    const S d = widen(dy[c]), xhat = (widen(x[c]) - mean) * rstd, g = d * widen(weight[c]);
    sum_g += g;
    sum_gx += g * xhat;
    dweight[c] += d * xhat;
    dbias[c] += d;
  }
  // Both means are of the whole row, so that dx takes a second pass over it: it is still in cache.
  const S mean_g = sum_g / static_cast<S>(C), mean_gx = sum_gx / static_cast<S>(C);
#pragma omp simd
  for (std::int64_t c = 0; c < C; ++c) {
    const S xhat = (widen(x[c]) - mean) * rstd, g = widen(dy[c]) * widen(weight[c]);
    dx[c] = narrow<T>(rstd * (g - mean_g - xhat * mean_gx));
  }
}

}  // namespace

void layer_norm(View y, View mean, View rstd, ConstView x, ConstView weight, ConstView bias,
                double epsilon) {
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    using S = Accumulator<T>;
    const std::int64_t N = x.shape()[0], C = x.shape()[1];
    const T *in = x.data<T>(), *gain = weight.data<T>(), *shift = bias.data<T>();
    T* out = y.data<T>();
    S *means = mean.data<S>(), *rstds = rstd.data<S>();
    parallel_rows(N, C, [=](std::int64_t n) {
      const T* row = in + n * C;
      T* to = out + n * C;
      const S m = sum_of<S>(C, [=](std::int64_t c) { return widen(row[c]); }) / static_cast<S>(C);
      const S squares = sum_of<S>(C, [=](std::int64_t c) {
        const S d = widen(row[c]) - m;  // the mean of squares less the mean's square would cancel
        return d * d;
      });
      const S r = S(1) / std::sqrt(squares / static_cast<S>(C) + static_cast<S>(epsilon));
#pragma omp simd
      for (std::int64_t c = 0; c < C; ++c)
        to[c] = narrow<T>((widen(row[c]) - m) * r * widen(gain[c]) + widen(shift[c]));
      means[n] = m;
      rstds[n] = r;
    });
  });
}

void layer_norm_backward(View dx, View dweight, View dbias, ConstView dy, ConstView x,
                         ConstView weight, ConstView mean, ConstView rstd, Into weights_into) {
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    using S = Accumulator<T>;
    const std::int64_t N = x.shape()[0], C = x.shape()[1];
    const T *in = x.data<T>(), *gain = weight.data<T>(), *dout = dy.data<T>();
    const S *means = mean.data<S>(), *rstds = rstd.data<S>();
    T* din = dx.data<T>();
    // Rows are divided among threads, and each adds to columns of its own; these are summed at the
    // end, so that no two threads write one number.
    const ColumnSums<S> sums(N, 2 * C, dx.device());
    sums.add_rows([=](S* partial, std::int64_t n) {
      layer_norm_row_backward<T, S>(din + n * C, partial, partial + C, dout + n * C, in + n * C,
                                    gain, means[n], rstds[n], C);
    });
    sums.store(dweight, 0, weights_into);
    sums.store(dbias, C, weights_into);
  });
}

void add_bias(View out, ConstView x, ConstView bias) {
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const std::int64_t N = x.shape()[0], C = x.shape()[1];
    const T *in = x.data<T>(), *shift = bias.data<T>();
    T* to = out.data<T>();
    parallel_rows(N, C, [=](std::int64_t n) {
#pragma omp simd
      for (std::int64_t c = 0; c < C; ++c)
        to[n * C + c] = narrow<T>(widen(in[n * C + c]) + widen(shift[c]));
    });
  });
}

void add_bias_backward(View dbias, ConstView dy, Into into) {
  dispatch(dy.dtype(), [&](auto type) {
    using T = decltype(type);
    using S = Accumulator<T>;
    const std::int64_t N = dy.shape()[0], C = dy.shape()[1];
    const T* dout = dy.data<T>();
    const ColumnSums<S> sums(N, C, dbias.device());
    sums.add_rows([=](S* partial, std::int64_t n) {
#pragma omp simd
      for (std::int64_t c = 0; c < C; ++c) partial[c] += widen(dout[n * C + c]);
    });
    sums.store(dbias, 0, into);
  });
}

void scale_rows(View y, ConstView x, ConstView factors, Into into) {
  dispatch_or_f32(x.dtype(), y.dtype(), [&](auto type, auto y_type) {
    using T = decltype(type);
    using Y = decltype(y_type);
    using S = Accumulator<T>;
    const std::int64_t D = x.shape()[1];
    const T* in = x.data<T>();
    const S* factor = factors.data<S>();
    Y* out = y.data<Y>();
    parallel_rows(x.shape()[0], D, [=](std::int64_t n) {
      const T* row = in + n * D;
      Y* to = out + n * D;
      if (into == Into::Overwrite) {
#pragma omp simd
        for (std::int64_t d = 0; d < D; ++d) to[d] = narrow<Y>(factor[n] * widen(row[d]));
      } else {
#pragma omp simd
        for (std::int64_t d = 0; d < D; ++d)
          to[d] = narrow<Y>(widen(to[d]) + factor[n] * widen(row[d]));
      }
    });
  });
}

void row_dots(View dots, ConstView a, ConstView b) {
  dispatch(a.dtype(), [&](auto type) {
    using T = decltype(type);
    using S = Accumulator<T>;
    const std::int64_t D = a.shape()[1];
    const T *left = a.data<T>(), *right = b.data<T>();
    S* to = dots.data<S>();
    parallel_rows(a.shape()[0], D, [=](std::int64_t n) {
      const T *x = left + n * D, *y = right + n * D;
      to[n] = sum_of<S>(D, [=](std::int64_t d) { return widen(x[d]) * widen(y[d]); });
    });
  });
}

void softmax(View y, ConstView x) {
  if (x.count() == 0) return;
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    using S = Accumulator<T>;
    const std::int64_t C = x.shape()[-1];
    const T* in = x.data<T>();
    T* out = y.data<T>();
    parallel_rows(x.shape().rows(), C, [=](std::int64_t n) {
      const T* row = in + n * C;
      T* to = out + n * C;
      const S maximum = maximum_of<S>(row, C);
      // Less the maximum every exponent is at most 0: nothing overflows, and the sum is at least 1.
      const S sum =
          sum_of<S>(C, [=](std::int64_t c) { return vector_exp(widen(row[c]) - maximum); });
      const S inverse = S(1) / sum;
#pragma omp simd
      for (std::int64_t c = 0; c < C; ++c)
        to[c] = narrow<T>(vector_exp(widen(row[c]) - maximum) * inverse);
    });
  });
}

// dx = y (dy - sum(dy y)).
void softmax_backward(View dx, ConstView dy, ConstView y) {
  if (y.count() == 0) return;
  dispatch(y.dtype(), [&](auto type) {
    using T = decltype(type);
    using S = Accumulator<T>;
    const std::int64_t C = y.shape()[-1];
    const T *p = y.data<T>(), *d = dy.data<T>();
    T* to = dx.data<T>();
    parallel_rows(y.shape().rows(), C, [=](std::int64_t n) {
      const T *row = p + n * C, *gradient = d + n * C;
      T* out = to + n * C;
      const S sum =
          sum_of<S>(C, [=](std::int64_t c) { return widen(gradient[c]) * widen(row[c]); });
#pragma omp simd
      for (std::int64_t c = 0; c < C; ++c)
        out[c] = narrow<T>(widen(row[c]) * (widen(gradient[c]) - sum));
    });
  });
}

void masked_softmax(View y, ConstView x, double factor, const ops::AttentionMask& mask) {
  if (x.count() == 0) return;
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    using S = Accumulator<T>;
    const std::int64_t H = x.shape()[1], Q = x.shape()[2], K = x.shape()[3];
    const T* in = x.data<T>();
    T* out = y.data<T>();
    const auto by = static_cast<S>(factor);
    const std::int32_t* lengths =
        mask.key_lengths ? mask.key_lengths.data<std::int32_t>() : nullptr;
    parallel_rows(x.shape().rows(), K, [=, &mask](std::int64_t n) {
      const std::int64_t seen =
          lengths ? mask.seen(n % Q, K, lengths[n / (H * Q)]) : mask.seen(n % Q, K);
      const T* row = in + n * K;
      T* to = out + n * K;
      std::fill(to + seen, to + K, narrow<T>(S(0)));
      if (seen == 0) return;
      const S maximum = maximum_of<S>(row, seen);
      const S sum = sum_of<S>(
          seen, [=](std::int64_t k) { return vector_exp(by * (widen(row[k]) - maximum)); });
      const S inverse = S(1) / sum;
#pragma omp simd
      for (std::int64_t k = 0; k < seen; ++k)
        to[k] = narrow<T>(vector_exp(by * (widen(row[k]) - maximum)) * inverse);
    });
  });
}

void normalize_rows(View y, ConstView x) {
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    using S = Accumulator<T>;
    const std::int64_t C = x.shape()[1];
    const T* in = x.data<T>();
    T* out = y.data<T>();
    parallel_rows(x.shape()[0], C, [=](std::int64_t n) {
      const T* row = in + n * C;
      T* to = out + n * C;
      const S sum = sum_of<S>(C, [=](std::int64_t c) { return widen(row[c]); });
#pragma omp simd
      for (std::int64_t c = 0; c < C; ++c)
        to[c] = narrow<T>(sum == S(0) ? S(0) : widen(row[c]) / sum);
    });
  });
}

void normalize_rows_backward(View dx, ConstView dy, ConstView y, ConstView x) {
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    using S = Accumulator<T>;
    const std::int64_t C = x.shape()[1];
    const T *in = x.data<T>(), *shares = y.data<T>(), *gradients = dy.data<T>();
    T* to = dx.data<T>();
    parallel_rows(x.shape()[0], C, [=](std::int64_t n) {
      const T *row = in + n * C, *share = shares + n * C, *gradient = gradients + n * C;
      T* out = to + n * C;
      const S sum = sum_of<S>(C, [=](std::int64_t c) { return widen(row[c]); });
      const S mean =
          sum_of<S>(C, [=](std::int64_t c) { return widen(gradient[c]) * widen(share[c]); });
#pragma omp simd
      for (std::int64_t c = 0; c < C; ++c)
        out[c] = narrow<T>(sum == S(0) ? S(0) : (widen(gradient[c]) - mean) / sum);
    });
  });
}

}  // namespace aisc::cpu
