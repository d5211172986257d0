// Products of short types in F32's arithmetic: of F16, for which few processors have dot products
// with sums in F32, and of BF16 where F32 is faster. The factors are widened, multiplied, and the
// sums rounded once. The large factor of each form (the weight, or its gradient) goes through in
// pieces, so that what is widened is used while it is still in cache; else the F32 copies would
// cost more memory traffic than the short type saves.
#include <algorithm>

#include "common/ops/cpu/kernels.h"
#include "common/ops/cpu/parallel.h"
#include "common/ops/cpu/products.h"
#include "common/ops/cpu/vector_math.h"

namespace aisc::cpu {
namespace {

constexpr std::int64_t kPieceElements = std::int64_t{1} << 20;  // 4 MiB of F32

// How many rows of `columns` elements make a piece: a multiple of 16, so that products stay even.
std::int64_t piece_rows(std::int64_t rows, std::int64_t columns) {
  const std::int64_t fit = kPieceElements / std::max<std::int64_t>(columns, 1) / 16 * 16;
  return std::clamp<std::int64_t>(fit, 16, std::max<std::int64_t>(rows, 16));
}

Tensor workspace(std::int64_t rows, std::int64_t columns, Device& device) {
  return Tensor({rows, columns}, DType::F32, device, Purpose::Workspace);
}

// The columns [begin, begin + count) of x (rows, columns), in F32.
Tensor widened(const ConstView& x, std::int64_t begin, std::int64_t count) {
  const std::int64_t rows = x.shape()[0], columns = x.shape()[1];
  Tensor wide = workspace(rows, count, x.device());
  float* to = wide.data<float>();
  dispatch(x.dtype(), [&](auto type) {
    const auto* from = x.data<decltype(type)>() + begin;
    parallel_rows(rows, count, [=](std::int64_t i) {
#pragma omp simd
      for (std::int64_t j = 0; j < count; ++j)
        to[i * count + j] = static_cast<float>(widen(from[i * columns + j]));
    });
  });
  return wide;
}

Tensor widened(const ConstView& x) { return widened(x, 0, x.shape()[1]); }

// The block of `out` that begins at (row, column) = [itself +] wide, rounded to out's type.
void store(View out, std::int64_t row, std::int64_t column, const Tensor& wide, bool accumulate) {
  const std::int64_t rows = wide.shape()[0], columns = wide.shape()[1], stride = out.shape()[1];
  const float* from = wide.data<float>();
  dispatch(out.dtype(), [&](auto type) {
    using T = decltype(type);
    T* block = out.data<T>() + row * stride + column;
    parallel_rows(rows, columns, [=](std::int64_t i) {
      T* to = block + i * stride;
      const float* sums = from + i * columns;
      if (accumulate)
#pragma omp simd
        for (std::int64_t j = 0; j < columns; ++j) to[j] = narrow<T>(sums[j] + widen(to[j]));
      else
#pragma omp simd
        for (std::int64_t j = 0; j < columns; ++j) to[j] = narrow<T>(sums[j]);
    });
  });
}

}  // namespace

void widened_product(View out, ConstView a, ConstView b, const ops::MatmulOptions& options) {
  const ProductSizes size(out, a, options.transpose);
  const std::int64_t batch = size.batch, M = size.M, N = size.N, K = size.K;
  for (std::int64_t i = 0; batch > 1 && i < batch; ++i) {
    const auto matrix = [i](const auto& x) {
      return x.rows(i, i + 1).reshaped({x.shape()[1], x.shape()[2]});
    };
    widened_product(matrix(out), matrix(a), matrix(b), options);
  }
  if (batch > 1) return;
  const auto as_matrix = [](const auto& x) { return x.reshaped({x.shape()[-2], x.shape()[-1]}); };
  out = as_matrix(out), a = as_matrix(a), b = as_matrix(b);
  const bool accumulate = options.into == ops::Into::Accumulate;
  ops::MatmulOptions wide = options;
  wide.into = ops::Into::Overwrite;
  wide.bias = {};
  Device& device = out.device();

  if (options.transpose == ops::Transpose::First) {  // pieces of the rows of out: columns of a
    const Tensor right = widened(b);
    for (std::int64_t m = 0, piece = piece_rows(M, N); m < M; m += piece) {
      const std::int64_t rows = std::min(piece, M - m);
      const Tensor sums = workspace(rows, N, device), left = widened(a, m, rows);
      cpu::matmul(sums, left, right, wide);
      if (options.bias)
        add_bias(sums, sums, widened(options.bias.reshaped({1, N})).view().flat(0, N));
      store(out, m, 0, sums, accumulate);
    }
  } else if (options.transpose == ops::Transpose::Second) {  // pieces of the rows of b
    const Tensor left = widened(a);
    for (std::int64_t n = 0, piece = piece_rows(N, K); n < N; n += piece) {
      const std::int64_t columns = std::min(piece, N - n);
      const Tensor sums = workspace(M, columns, device), right = widened(b.rows(n, n + columns));
      const Tensor bias =
          options.bias ? widened(options.bias.reshaped({1, N}), n, columns) : Tensor();
      if (bias) wide.bias = bias.view().flat(0, columns);
      cpu::matmul(sums, left, right, wide);
      store(out, 0, n, sums, accumulate);
    }
  } else {  // pieces of the depth: rows of b, columns of a
    const Tensor sums = workspace(M, N, device);
    for (std::int64_t k = 0, piece = piece_rows(K, N); k < K; k += piece) {
      const std::int64_t depth = std::min(piece, K - k);
      const Tensor left = widened(a, k, depth), right = widened(b.rows(k, k + depth));
      cpu::matmul(sums, left, right, wide);
      wide.into = ops::Into::Accumulate;
    }
    if (options.bias)
      add_bias(sums, sums, widened(options.bias.reshaped({1, N})).view().flat(0, N));
    store(out, 0, 0, sums, accumulate);
  }
}

}  // namespace aisc::cpu
