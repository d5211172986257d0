// Operations on rows: bias, softmax and sums, with their backward passes.
//
// Bytes moved per element of `size` bytes: add_bias 2 size; add_bias_backward size, and of its
// partial sums at most 4 / 64 of an element written and read; softmax 3 size, softmax_backward
// 5 size, masked_softmax as softmax, row_dots 2 size, normalize_rows 3 size, its backward 5
// size; less where a row that is read a second time is still in cache.
// Share of a copy's bandwidth (./aisc bench gpu, BF16 on an H200): add_bias_backward .87.
#include "common/ops/cuda/attention.h"
#include "common/ops/cuda/column_sums.h"
#include "common/ops/cuda/exponentials.h"
#include "common/ops/cuda/grid.h"
#include "common/ops/cuda/kernels.h"
#include "common/ops/cuda/reduce.h"

namespace aisc::cuda {
namespace {

// ---- bias ---------------------------------------------------------------------------------------

// A thread keeps n elements of the bias for all its rows; n divides C. `out` may be x.
template <int n, class T>
__global__ void __launch_bounds__(kThreads)
    add_bias_kernel(T* out, const T* x, const T* bias, std::int64_t N, std::int64_t C) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const std::int64_t c = (std::int64_t{blockIdx.x} * 32 + lane) * n;
  if (c >= C) return;
  // The columns stay with the thread, and rows go by: the bias is read once a thread.
  Accumulator<T> shift[n];
  load<n>(shift, bias + c);
  const std::int64_t step = std::int64_t{gridDim.y} * (kThreads / 32);
  for (std::int64_t row = std::int64_t{blockIdx.y} * (kThreads / 32) + warp; row < N; row += step) {
    Accumulator<T> values[n];
    load<n>(values, x + row * C + c);
#pragma unroll
    for (int k = 0; k < n; ++k) values[k] += shift[k];
    store<n>(out + row * C + c, values);
  }
}

template <class T>
struct BiasTerms {
  static constexpr int kQuantities = 1;
  const T* dy;
  std::int64_t C;

  template <int n, class S>
  __device__ __forceinline__ void add(S (&sums)[1][n], std::int64_t row, std::int64_t c) const {
    S values[n];
    load<n>(values, dy + row * C + c);
#pragma unroll
    for (int k = 0; k < n; ++k) sums[0][k] += values[k];
  }
};

// ---- softmax ------------------------------------------------------------------------------------

// y may be x: a thread writes the elements that it alone reads, after all have been read once.
template <int n, int threads, class T>
__global__ void __launch_bounds__(RowThreads<threads>::kBlock)
    softmax_kernel(T* y, const T* x, std::int64_t N, std::int64_t C) {
  using S = Accumulator<T>;
  const std::int64_t row = RowThreads<threads>::row();
  const int index = RowThreads<threads>::index();
  if (row >= N) return;
  const Exponentials<S> all = exponentials_of<n, threads>(x + row * C, C, index);
  const S inverse = S(1) / all.sum, shift = all.shift();
  for (std::int64_t c = std::int64_t{index} * n; c < C; c += threads * n) {
    S values[n];
    load<n>(values, x + row * C + c);
#pragma unroll
    for (int k = 0; k < n; ++k) values[k] = exp_of(values[k] - shift) * inverse;
    store<n>(y + row * C + c, values);
  }
}

// dx = y (dy - sum(dy y)).
template <int n, int threads, class T>
__global__ void __launch_bounds__(RowThreads<threads>::kBlock)
    softmax_backward_kernel(T* dx, const T* dy, const T* y, std::int64_t N, std::int64_t C) {
  using S = Accumulator<T>;
  const std::int64_t row = RowThreads<threads>::row();
  const int index = RowThreads<threads>::index();
  if (row >= N) return;
  const T *probabilities = y + row * C, *gradients = dy + row * C;
  // The first pass leaves in each thread the sum of its elements; reduce() makes it the row's, the
  // same in all threads, which the second pass needs for every element.
  S sum = 0;
#pragma unroll 2
  for (std::int64_t c = std::int64_t{index} * n; c < C; c += threads * n) {
    S p[n], d[n];
    load<n>(p, probabilities + c);
    load<n>(d, gradients + c);
#pragma unroll
    for (int k = 0; k < n; ++k) sum += d[k] * p[k];
  }
  sum = reduce<threads>(sum, Add{});
  for (std::int64_t c = std::int64_t{index} * n; c < C; c += threads * n) {
    S p[n], d[n];
    load<n>(p, probabilities + c);
    load<n>(d, gradients + c);
#pragma unroll
    for (int k = 0; k < n; ++k) d[k] = p[k] * (d[k] - sum);
    store<n>(dx + row * C + c, d);
  }
}

// The softmax of factor * x over the keys that a row's query sees. Q queries of K keys; a sample
// has rows_of_sample rows. y may be x, as above: what a thread has read it writes.
template <int threads, class T>
__global__ void __launch_bounds__(RowThreads<threads>::kBlock)
    masked_softmax_kernel(T* y, const T* x, std::int64_t N, int Q, std::int64_t rows_of_sample,
                          std::int64_t K, Accumulator<T> factor, SeenKeys mask) {
  using S = Accumulator<T>;
  const std::int64_t row = RowThreads<threads>::row();
  const int index = RowThreads<threads>::index();
  if (row >= N) return;
  const std::int64_t seen = mask.seen(row / rows_of_sample, static_cast<int>(row % Q));
  const T* scores = x + row * K;
  Exponentials<S> all;
  for (std::int64_t k = index; k < seen; k += threads) {
    const S value[1] = {factor * widen(scores[k])};
    all.add(value);
  }
  all.template join<threads>();
  const S inverse = S(1) / all.sum, shift = all.shift();
  for (std::int64_t k = index; k < K; k += threads)
    y[row * K + k] =
        narrow<T>(k < seen ? exp_of(factor * widen(scores[k]) - shift) * inverse : S(0));
}

// Calls f<n, threads>() for rows of C elements of T: up to 32 accesses of a warp's, a warp a row.
template <class T, class F>
void dispatch_row(std::int64_t C, bool pointers_aligned, const F& f) {
  dispatch_width<T>(pointers_aligned && C % kWidth<T> == 0, [&]<int n>() {
    if (C <= 32 * 32 * n)
      f.template operator()<n, 32>();
    else
      f.template operator()<n, kThreads>();
  });
}

// ---- factors ------------------------------------------------------------------------------------

template <class T, class Y>
__global__ void __launch_bounds__(kThreads)
    scale_rows_kernel(Y* y, const T* x, const Accumulator<T>* factors, std::int64_t count,
                      std::int64_t D, bool accumulate) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  Accumulator<T> value = factors[i / D] * widen(x[i]);
  if (accumulate) value += widen(y[i]);
  y[i] = narrow<Y>(value);
}

// ---- sums of rows -------------------------------------------------------------------------------

// The sum over c of f(row, c), by the row's threads together; each gets all of it.
template <int threads, class S, class F>
__device__ __forceinline__ S row_sum(std::int64_t C, const F& f) {
  S sum = 0;
  for (std::int64_t c = RowThreads<threads>::index(); c < C; c += threads) sum += f(c);
  return reduce<threads>(sum, Add{});
}

template <int threads, class T>
__global__ void __launch_bounds__(RowThreads<threads>::kBlock)
    row_dots_kernel(Accumulator<T>* dots, const T* a, const T* b, std::int64_t N, std::int64_t D) {
  using S = Accumulator<T>;
  const std::int64_t row = RowThreads<threads>::row();
  if (row >= N) return;
  const T *x = a + row * D, *y = b + row * D;
  const S dot = row_sum<threads, S>(D, [=](std::int64_t d) { return widen(x[d]) * widen(y[d]); });
  if (RowThreads<threads>::index() == 0) dots[row] = dot;
}

// y may be x: a thread writes the elements that it alone reads, after all have been read once.
template <int threads, class T>
__global__ void __launch_bounds__(RowThreads<threads>::kBlock)
    normalize_rows_kernel(T* y, const T* x, std::int64_t N, std::int64_t C) {
  using S = Accumulator<T>;
  const std::int64_t row = RowThreads<threads>::row();
  if (row >= N) return;
  const T* in = x + row * C;
  const S sum = row_sum<threads, S>(C, [=](std::int64_t c) { return widen(in[c]); });
  for (std::int64_t c = RowThreads<threads>::index(); c < C; c += threads)
    y[row * C + c] = narrow<T>(sum == S(0) ? S(0) : widen(in[c]) / sum);
}

template <int threads, class T>
__global__ void __launch_bounds__(RowThreads<threads>::kBlock)
    normalize_rows_backward_kernel(T* dx, const T* dy, const T* y, const T* x, std::int64_t N,
                                   std::int64_t C) {
  using S = Accumulator<T>;
  const std::int64_t row = RowThreads<threads>::row();
  if (row >= N) return;
  const T *in = x + row * C, *shares = y + row * C, *gradients = dy + row * C;
  const S sum = row_sum<threads, S>(C, [=](std::int64_t c) { return widen(in[c]); });
  const S mean = row_sum<threads, S>(
      C, [=](std::int64_t c) { return widen(gradients[c]) * widen(shares[c]); });
  for (std::int64_t c = RowThreads<threads>::index(); c < C; c += threads)
    dx[row * C + c] = narrow<T>(sum == S(0) ? S(0) : (widen(gradients[c]) - mean) / sum);
}

// Calls f<threads>() for rows of C elements that are read one by one.
template <class F>
void dispatch_row_threads(std::int64_t C, const F& f) {
  if (C <= 32 * 32)
    f.template operator()<32>();
  else
    f.template operator()<kThreads>();
}

}  // namespace

void add_bias(View out, ConstView x, ConstView bias) {
  const std::int64_t N = x.shape()[0], C = x.shape()[1];
  if (N == 0) return;
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const bool wide = aligned(out.raw(), x.raw(), bias.raw()) && C % kWidth<T> == 0;
    dispatch_width<T>(wide, [&]<int n>() {
      constexpr std::int64_t kRows = kThreads / 32, kRowsOfAThread = 4, kMostBlocks = 65535;
      const std::int64_t down = std::min(pieces(N, kRows * kRowsOfAThread), kMostBlocks);
      launch_kernel("add_bias", stream_of(x),
                    dim3(blocks_for(C, 32 * n), static_cast<unsigned>(down)), kThreads, 0,
                    add_bias_kernel<n, T>, elements<T>(out), elements<T>(x), elements<T>(bias), N,
                    C);
    });
  });
}

void add_bias_backward(View dbias, ConstView dy, Into into) {
  const std::int64_t C = dy.shape()[1];
  dispatch(dy.dtype(), [&](auto type) {
    using T = decltype(type);
    using S = Accumulator<T>;
    dispatch_width<T>(aligned(dy.raw()) && C % kWidth<T> == 0, [&]<int n>() {
      const Tensor partials =
          column_partials<n, S>("add_bias_backward", dy, BiasTerms<T>{elements<T>(dy), C});
      add_partials("add_bias_backward", dbias, elements<S>(partials.view()), partials.shape()[0], C,
                   into);
    });
  });
}

void scale_rows(View y, ConstView x, ConstView factors, Into into) {
  if (x.count() == 0) return;
  dispatch_or_f32(x.dtype(), y.dtype(), [&](auto type, auto y_type) {
    using T = decltype(type);
    using Y = decltype(y_type);
    launch_kernel("scale_rows", stream_of(x), blocks_for(x.count(), kThreads), kThreads, 0,
                  scale_rows_kernel<T, Y>, elements<Y>(y), elements<T>(x),
                  elements<Accumulator<T>>(factors), x.count(), x.shape()[1],
                  into == Into::Accumulate);
  });
}

void softmax(View y, ConstView x) {
  if (x.count() == 0) return;
  const std::int64_t N = x.shape().rows(), C = x.shape()[-1];
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    dispatch_row<T>(C, aligned(y.raw(), x.raw()), [&]<int n, int threads>() {
      using Rows = RowThreads<threads>;
      launch_kernel("softmax", stream_of(x), blocks_for(N, Rows::kRows), Rows::kBlock, 0,
                    softmax_kernel<n, threads, T>, elements<T>(y), elements<T>(x), N, C);
    });
  });
}

void softmax_backward(View dx, ConstView dy, ConstView y) {
  if (y.count() == 0) return;
  const std::int64_t N = y.shape().rows(), C = y.shape()[-1];
  dispatch(y.dtype(), [&](auto type) {
    using T = decltype(type);
    dispatch_row<T>(C, aligned(dx.raw(), dy.raw(), y.raw()), [&]<int n, int threads>() {
      using Rows = RowThreads<threads>;
      launch_kernel("softmax_backward", stream_of(y), blocks_for(N, Rows::kRows), Rows::kBlock, 0,
                    softmax_backward_kernel<n, threads, T>, elements<T>(dx), elements<T>(dy),
                    elements<T>(y), N, C);
    });
  });
}

void masked_softmax(View y, ConstView x, double factor, const ops::AttentionMask& mask) {
  const std::int64_t N = x.shape().rows(), Q = x.shape()[2], K = x.shape()[3];
  if (x.count() == 0) return;
  const SeenKeys seen(mask, static_cast<int>(K));
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const auto launch = [&]<int threads>() {
      using Rows = RowThreads<threads>;
      launch_kernel("masked_softmax", stream_of(x), blocks_for(N, Rows::kRows), Rows::kBlock, 0,
                    masked_softmax_kernel<threads, T>, elements<T>(y), elements<T>(x), N,
                    static_cast<int>(Q), x.shape()[1] * Q, K, static_cast<Accumulator<T>>(factor),
                    seen);
    };
    dispatch_row_threads(K, launch);
  });
}

void row_dots(View dots, ConstView a, ConstView b) {
  const std::int64_t N = a.shape()[0], D = a.shape()[1];
  dispatch(a.dtype(), [&](auto type) {
    using T = decltype(type);
    dispatch_row_threads(D, [&]<int threads>() {
      using Rows = RowThreads<threads>;
      launch_kernel("row_dots", stream_of(a), blocks_for(N, Rows::kRows), Rows::kBlock, 0,
                    row_dots_kernel<threads, T>, elements<Accumulator<T>>(dots), elements<T>(a),
                    elements<T>(b), N, D);
    });
  });
}

void normalize_rows(View y, ConstView x) {
  const std::int64_t N = x.shape()[0], C = x.shape()[1];
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    dispatch_row_threads(C, [&]<int threads>() {
      using Rows = RowThreads<threads>;
      launch_kernel("normalize_rows", stream_of(x), blocks_for(N, Rows::kRows), Rows::kBlock, 0,
                    normalize_rows_kernel<threads, T>, elements<T>(y), elements<T>(x), N, C);
    });
  });
}

void normalize_rows_backward(View dx, ConstView dy, ConstView y, ConstView x) {
  const std::int64_t N = x.shape()[0], C = x.shape()[1];
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    dispatch_row_threads(C, [&]<int threads>() {
      using Rows = RowThreads<threads>;
      launch_kernel("normalize_rows_backward", stream_of(x), blocks_for(N, Rows::kRows),
                    Rows::kBlock, 0, normalize_rows_backward_kernel<threads, T>, elements<T>(dx),
                    elements<T>(dy), elements<T>(y), elements<T>(x), N, C);
    });
  });
}

}  // namespace aisc::cuda
