// Layer norm, forward and backward. Where rows are aligned and at most 32 KiB long (backward 24
// KiB), a row stays in the registers of a warp or a block between its passes: it is read from
// memory once.
//
// Bytes moved per element of `size` bytes: forward 2 size, backward 3 size, and of its partial sums
// 2 * 4 / (rows of a block) bytes written and read; other rows are read three times forward and
// backward, from cache where it holds them. Share of a copy's bandwidth (./aisc bench gpu,
// BF16 on an H200): forward .94, backward .77.
#include "common/ops/cuda/column_sums.h"
#include "common/ops/cuda/exponentials.h"
#include "common/ops/cuda/grid.h"
#include "common/ops/cuda/kernels.h"
#include "common/ops/cuda/reduce.h"

namespace aisc::cuda {
namespace {

// ---- rows in registers --------------------------------------------------------------------------

// The accesses of one thread to a row of C elements: `accesses` of n elements, `threads` n apart.
template <int n, int threads>
__device__ __forceinline__ std::int64_t column_of(int access) {
  return (std::int64_t{access} * threads + RowThreads<threads>::index()) * n;
}

template <int n, int threads, int accesses, class T>
__global__ void __launch_bounds__(RowThreads<threads>::kBlock)
    layer_norm_kernel(T* y, Accumulator<T>* means, Accumulator<T>* rstds, const T* x,
                      const T* weight, const T* bias, std::int64_t N, std::int64_t C,
                      Accumulator<T> epsilon) {
  using S = Accumulator<T>;
  const std::int64_t row = RowThreads<threads>::row();
  if (row >= N) return;
  S values[accesses][n] = {};
  S sum = 0;
#pragma unroll
  for (int a = 0; a < accesses; ++a) {
    const std::int64_t c = column_of<n, threads>(a);
    if (c < C) load<n>(values[a], x + row * C + c);
  }
#pragma unroll
  for (int a = 0; a < accesses; ++a)
#pragma unroll
    for (int k = 0; k < n; ++k) sum += values[a][k];  // 0 beyond the row
  const S mean = reduce<threads>(sum, Add{}) / static_cast<S>(C);
  S squares = 0;
#pragma unroll
  for (int a = 0; a < accesses; ++a) {
    if (column_of<n, threads>(a) >= C) continue;
#pragma unroll
    for (int k = 0; k < n; ++k) {
      values[a][k] -= mean;  // the mean of squares less the mean's square would cancel
      squares += values[a][k] * values[a][k];
    }
  }
  squares = reduce<threads>(squares, Add{});
  const S rstd = S(1) / root_of(squares / static_cast<S>(C) + epsilon);
#pragma unroll
  for (int a = 0; a < accesses; ++a) {
    const std::int64_t c = column_of<n, threads>(a);
    if (c >= C) continue;
    S gain[n], shift[n];
    load<n>(gain, weight + c);
    load<n>(shift, bias + c);
#pragma unroll
    for (int k = 0; k < n; ++k) values[a][k] = values[a][k] * rstd * gain[k] + shift[k];
    store<n>(y + row * C + c, values[a]);
  }
  if (RowThreads<threads>::index() == 0) {
    means[row] = mean;
    rstds[row] = rstd;
  }
}

// dx = rstd (g - mean(g) - xhat mean(g xhat)) with g = dy weight and xhat = (x - mean) rstd.
// A block takes block_rows rows and writes its sums of dy xhat to partials[block][0 .. C) and of dy
// to [C .. 2 C). A thread has the same columns of all rows, and keeps their sums. dx may be dy.
template <int n, int threads, int accesses, class T>
__global__ void __launch_bounds__(RowThreads<threads>::kBlock)
    layer_norm_backward_kernel(T* dx, Accumulator<T>* partials, const T* dy, const T* x,
                               const T* weight, const Accumulator<T>* means,
                               const Accumulator<T>* rstds, std::int64_t N, std::int64_t C,
                               std::int64_t block_rows) {
  using S = Accumulator<T>;
  constexpr int kRows = RowThreads<threads>::kRows;
  const int group = static_cast<int>(threadIdx.x) / threads;
  const std::int64_t first = std::int64_t{blockIdx.x} * block_rows;
  const std::int64_t last = first + block_rows < N ? first + block_rows : N;
  S dweight[accesses][n] = {}, dbias[accesses][n] = {};
  for (std::int64_t row = first + group; row < last; row += kRows) {
    const S mean = means[row], rstd = rstds[row];
    Neighbours<T, n> of_x[accesses] = {}, of_dy[accesses] = {};
    S sum_g = 0, sum_gx = 0;
#pragma unroll
    for (int a = 0; a < accesses; ++a) {
      const std::int64_t c = column_of<n, threads>(a);
      if (c >= C) continue;
      of_x[a] = neighbours<n>(x + row * C + c);
      of_dy[a] = neighbours<n>(dy + row * C + c);
    }
#pragma unroll
    for (int a = 0; a < accesses; ++a) {
      const std::int64_t c = column_of<n, threads>(a);
      if (c >= C) continue;
      const Neighbours<T, n> gain = neighbours<n>(weight + c);
#pragma unroll
      for (int k = 0; k < n; ++k) {
        const S d = widen(of_dy[a].elements[k]), g = d * widen(gain.elements[k]);
        const S xhat = (widen(of_x[a].elements[k]) - mean) * rstd;
        sum_g += g;
        sum_gx += g * xhat;
        dweight[a][k] += d * xhat;
        dbias[a][k] += d;
      }
    }
    const S mean_g = reduce<threads>(sum_g, Add{}) / static_cast<S>(C);
    const S mean_gx = reduce<threads>(sum_gx, Add{}) / static_cast<S>(C);
#pragma unroll
    for (int a = 0; a < accesses; ++a) {
      const std::int64_t c = column_of<n, threads>(a);
      if (c >= C) continue;
      const Neighbours<T, n> gain = neighbours<n>(weight + c);
      S values[n];
#pragma unroll
      for (int k = 0; k < n; ++k) {
        const S g = widen(of_dy[a].elements[k]) * widen(gain.elements[k]);
        const S xhat = (widen(of_x[a].elements[k]) - mean) * rstd;
        values[k] = rstd * (g - mean_g - xhat * mean_gx);
      }
      store<n>(dx + row * C + c, values);
    }
  }
  // One group of threads after the other adds its sums to the block's.
  S* sums = partials + std::int64_t{blockIdx.x} * 2 * C;
  S* block_sums = kRows > 1 ? gpu::dynamic_shared<S>() : sums;
  for (int turn = 0; turn < kRows; ++turn) {
    if (kRows > 1) __syncthreads();
    if (turn != group) continue;
    S* to = turn + 1 < kRows ? block_sums : sums;
#pragma unroll
    for (int a = 0; a < accesses; ++a) {
      const std::int64_t c = column_of<n, threads>(a);
      if (c >= C) continue;
      if (turn > 0) {
        S before[n];
        load<n>(before, block_sums + c);
#pragma unroll
        for (int k = 0; k < n; ++k) dweight[a][k] += before[k];
        load<n>(before, block_sums + C + c);
#pragma unroll
        for (int k = 0; k < n; ++k) dbias[a][k] += before[k];
      }
      store<n>(to + c, dweight[a]);
      store<n>(to + C + c, dbias[a]);
    }
  }
}

// ---- any rows -----------------------------------------------------------------------------------

template <class T>
__global__ void __launch_bounds__(kThreads)
    any_layer_norm_kernel(T* y, Accumulator<T>* means, Accumulator<T>* rstds, const T* x,
                          const T* weight, const T* bias, std::int64_t C, Accumulator<T> epsilon) {
  using S = Accumulator<T>;
  const std::int64_t row = blockIdx.x;
  const T* values = x + row * C;
  S sum = 0, squares = 0;
#pragma unroll 4
  for (std::int64_t c = threadIdx.x; c < C; c += kThreads) sum += widen(values[c]);
  const S mean = reduce<kThreads>(sum, Add{}) / static_cast<S>(C);
#pragma unroll 4
  for (std::int64_t c = threadIdx.x; c < C; c += kThreads) {
    const S d = widen(values[c]) - mean;
    squares += d * d;
  }
  squares = reduce<kThreads>(squares, Add{});
  const S rstd = S(1) / root_of(squares / static_cast<S>(C) + epsilon);
  for (std::int64_t c = threadIdx.x; c < C; c += kThreads)
    y[row * C + c] =
        narrow<T>((widen(values[c]) - mean) * rstd * widen(weight[c]) + widen(bias[c]));
  if (threadIdx.x == 0) {
    means[row] = mean;
    rstds[row] = rstd;
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    any_layer_norm_dx_kernel(T* dx, const T* dy, const T* x, const T* weight,
                             const Accumulator<T>* means, const Accumulator<T>* rstds,
                             std::int64_t C) {
  using S = Accumulator<T>;
  const std::int64_t row = blockIdx.x;
  const S mean = means[row], rstd = rstds[row];
  const auto g = [&](std::int64_t c) { return widen(dy[row * C + c]) * widen(weight[c]); };
  const auto xhat = [&](std::int64_t c) { return (widen(x[row * C + c]) - mean) * rstd; };
  S sum_g = 0, sum_gx = 0;
#pragma unroll 4
  for (std::int64_t c = threadIdx.x; c < C; c += kThreads) {
    sum_g += g(c);
    sum_gx += g(c) * xhat(c);
  }
  const S mean_g = reduce<kThreads>(sum_g, Add{}) / static_cast<S>(C);
  const S mean_gx = reduce<kThreads>(sum_gx, Add{}) / static_cast<S>(C);
  for (std::int64_t c = threadIdx.x; c < C; c += kThreads)
    dx[row * C + c] = narrow<T>(rstd * (g(c) - mean_g - xhat(c) * mean_gx));
}

// dweight's terms dy xhat, and dbias's dy.
template <class T>
struct WeightTerms {
  static constexpr int kQuantities = 2;
  const T *dy, *x;
  const Accumulator<T>*means, *rstds;
  std::int64_t C;

  template <int n, class S>
  __device__ __forceinline__ void add(S (&sums)[2][n], std::int64_t row, std::int64_t c) const {
    S d[n], values[n];
    load<n>(d, dy + row * C + c);
    load<n>(values, x + row * C + c);
    const S mean = means[row], rstd = rstds[row];
#pragma unroll
    for (int k = 0; k < n; ++k) {
      sums[0][k] += d[k] * ((values[k] - mean) * rstd);
      sums[1][k] += d[k];
    }
  }
};

// ---- which of them ------------------------------------------------------------------------------

// Calls f<threads, accesses>() for the least that holds a row of C elements, `width` in an access;
// false if none does. `of_warp` and `of_block` are the accesses of a thread, where a warp and where
// a block has a row, that leave registers enough.
template <int of_warp, int of_block, class F>
bool dispatch_registers(std::int64_t C, int width, const F& f) {
  const std::int64_t accesses = pieces(C, width);
  if (accesses <= 32)
    f.template operator()<32, 1>();
  else if (accesses <= 64)
    f.template operator()<32, 2>();
  else if (accesses <= 96)
    f.template operator()<32, 3>();
  else if (accesses <= 32 * of_warp)
    f.template operator()<32, of_warp>();
  else if (accesses <= 128)
    f.template operator()<128, 1>();
  else if (accesses <= 256)
    f.template operator()<128, 2>();
  else if (accesses <= 512)
    f.template operator()<256, 2>();
  else if (accesses <= 1024)
    f.template operator()<512, 2>();
  else if (accesses <= 512 * of_block)
    f.template operator()<512, of_block>();
  else
    return false;
  return true;
}

}  // namespace

void layer_norm(View y, View mean, View rstd, ConstView x, ConstView weight, ConstView bias,
                double epsilon) {
  const std::int64_t N = x.shape()[0], C = x.shape()[1];
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    using S = Accumulator<T>;
    constexpr int n = kWidth<T>;
    const auto in_registers = [&]<int threads, int accesses>() {
      using Rows = RowThreads<threads>;
      launch_kernel("layer_norm", stream_of(x), blocks_for(N, Rows::kRows), Rows::kBlock, 0,
                    layer_norm_kernel<n, threads, accesses, T>, elements<T>(y), elements<S>(mean),
                    elements<S>(rstd), elements<T>(x), elements<T>(weight), elements<T>(bias), N, C,
                    static_cast<S>(epsilon));
    };
    if (C % n == 0 && aligned(y.raw(), x.raw(), weight.raw(), bias.raw()) &&
        dispatch_registers<4, 4>(C, n, in_registers))
      return;
    launch_kernel("layer_norm", stream_of(x), static_cast<unsigned>(N), kThreads, 0,
                  any_layer_norm_kernel<T>, elements<T>(y), elements<S>(mean), elements<S>(rstd),
                  elements<T>(x), elements<T>(weight), elements<T>(bias), C,
                  static_cast<S>(epsilon));
  });
}

void layer_norm_backward(View dx, View dweight, View dbias, ConstView dy, ConstView x,
                         ConstView weight, ConstView mean, ConstView rstd, Into weights_into) {
  const std::int64_t N = x.shape()[0], C = x.shape()[1];
  const char* const what = "layer_norm_backward";
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    using S = Accumulator<T>;
    constexpr int n = kWidth<T>;
    const auto *means = elements<S>(mean), *rstds = elements<S>(rstd);
    Tensor partials;  // (blocks, 2 C)
    const auto in_registers = [&]<int threads, int accesses>() {
      using Rows = RowThreads<threads>;
      constexpr std::int64_t kBlocks = 131072 / Rows::kBlock;  // at most: 1000 threads for each of
                                                               // 132 multiprocessors
      const std::int64_t block_rows = rows_per_block(N, 8, kBlocks);
      const std::int64_t blocks = pieces(N, block_rows);
      partials = Tensor({blocks, 2 * C}, DTypeOf<S>::value, x.device(), Purpose::Workspace);
      const std::size_t shared = Rows::kRows > 1 ? 2 * static_cast<std::size_t>(C) * sizeof(S) : 0;
      launch_kernel(what, stream_of(x), static_cast<unsigned>(blocks), Rows::kBlock, shared,
                    layer_norm_backward_kernel<n, threads, accesses, T>, elements<T>(dx),
                    elements<S>(partials.view()), elements<T>(dy), elements<T>(x),
                    elements<T>(weight), means, rstds, N, C, block_rows);
    };
    if (!(C % n == 0 && aligned(dx.raw(), dy.raw(), x.raw(), weight.raw()) &&
          dispatch_registers<3, 3>(C, n, in_registers))) {
      const WeightTerms<T> terms{elements<T>(dy), elements<T>(x), means, rstds, C};
      partials = column_partials<1, S>(what, x, terms);  // before dx, which may take dy's place
      launch_kernel(what, stream_of(x), static_cast<unsigned>(N), kThreads, 0,
                    any_layer_norm_dx_kernel<T>, elements<T>(dx), elements<T>(dy), elements<T>(x),
                    elements<T>(weight), means, rstds, C);
    }
    const S* sums = elements<S>(partials.view());
    add_partials(what, dweight, sums, partials.shape()[0], 2 * C, weights_into);
    add_partials(what, dbias, sums + C, partials.shape()[0], 2 * C, weights_into);
  });
}

}  // namespace aisc::cuda
