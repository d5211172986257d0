// out = op(a) op(b) in blocks: both factors are packed into tiles that stay in cache, where
// transposing and widening happen on the way; the sums of a tile of `out` are kept in full
// precision over the whole depth and rounded once.
#include <omp.h>

#include <algorithm>

#include "common/ops/cpu/kernels.h"
#include "common/ops/cpu/products.h"
#include "common/ops/cpu/tile_product.h"

namespace aisc::cpu {
namespace {

constexpr std::int64_t kRows = 48, kColumns = 128, kDepth = 128;

// One factor, seen as op(x): element (i, j) of matrix `batch` is data[batch * size + i * row + j *
// column].
template <class T>
struct Factor {
  Factor(const T* data_, std::int64_t rows, std::int64_t columns, bool transposed)
      : data(data_),
        size(rows * columns),
        row(transposed ? 1 : columns),
        column(transposed ? rows : 1) {}

  const T* data;
  std::int64_t size, row, column;
};

// tile (rows, stride) = the block of `x` that begins at (i0, j0); columns beyond `columns` become
// 0.
template <class S, class T>
void pack(S* tile, std::int64_t stride, const Factor<T>& x, const T* matrix, std::int64_t i0,
          std::int64_t j0, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t i = 0; i < rows; ++i) {
    const T* from = matrix + (i0 + i) * x.row + j0 * x.column;
    S* to = tile + i * stride;
    for (std::int64_t j = 0; j < columns; ++j) to[j] = static_cast<S>(from[j * x.column]);
    std::fill(to + columns, to + stride, S(0));
  }
}

template <class T, class Out>
void product(View out, ConstView a, ConstView b, const ops::MatmulOptions& options) {
  using S = Accumulator<T>;
  const ProductSizes size(out, a, options.transpose);
  const std::int64_t batch = size.batch, M = size.M, N = size.N, K = size.K;
  const Factor<T> left(a.data<T>(), M, K, options.transpose == ops::Transpose::First);
  const Factor<T> right(b.data<T>(), K, N, options.transpose == ops::Transpose::Second);
  const bool accumulate = options.into == ops::Into::Accumulate;
  const S alpha = static_cast<S>(options.alpha);
  const T* bias = options.bias ? options.bias.data<T>() : nullptr;
  Out* result = out.data<Out>();

  const std::int64_t row_tiles = (M + kRows - 1) / kRows;
  const std::int64_t column_tiles = (N + kColumns - 1) / kColumns;
  const std::int64_t tiles = batch * row_tiles * column_tiles;
#pragma omp parallel for if (2 * batch * M * N * K > 100'000)
  for (std::int64_t tile = 0; tile < tiles; ++tile) {
    alignas(64) S sums[kRows * kColumns];
    alignas(64) S packed_left[kRows * kDepth];
    alignas(64) S packed_right[kDepth * kColumns];
    const std::int64_t matrix = tile / (row_tiles * column_tiles);
    const std::int64_t i0 = tile / column_tiles % row_tiles * kRows;
    const std::int64_t j0 = tile % column_tiles * kColumns;
    const std::int64_t rows = std::min(kRows, M - i0), columns = std::min(kColumns, N - j0);
    const std::int64_t stride = tile_padded<S>(columns);
    std::fill(sums, sums + rows * stride, S(0));
    // Before each turn `sums` are those of the first k0 terms. Both packed blocks stay in cache
    // while every row of the one meets every column of the other.
    for (std::int64_t k0 = 0; k0 < K; k0 += kDepth) {
      const std::int64_t depth = std::min(kDepth, K - k0);
      pack(packed_left, depth, left, left.data + matrix * left.size, i0, k0, rows, depth);
      pack(packed_right, stride, right, right.data + matrix * right.size, k0, j0, depth, columns);
      tile_product<S>(sums, stride, {packed_left, depth, 1}, packed_right, stride, rows, stride,
                      depth);
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      Out* to = result + (matrix * M + i0 + i) * N + j0;
      for (std::int64_t j = 0; j < columns; ++j) {
        S value = alpha * sums[i * stride + j];
        if (bias) value += static_cast<S>(bias[j0 + j]);
        if (accumulate) value += static_cast<S>(to[j]);
        to[j] = static_cast<Out>(value);
      }
    }
  }
}

}  // namespace

ProductSizes::ProductSizes(const View& out, const ConstView& a, ops::Transpose transpose)
    : batch(out.shape().rank() == 3 ? out.shape()[0] : 1),
      M(out.shape()[-2]),
      N(out.shape()[-1]),
      K(a.shape()[transpose == ops::Transpose::First ? -2 : -1]) {}

void plain_product(View out, ConstView a, ConstView b, const ops::MatmulOptions& options) {
  dispatch_or_f32(a.dtype(), out.dtype(), [&](auto type, auto out_type) {
    product<decltype(type), decltype(out_type)>(out, a, b, options);
  });
}

void matmul(View out, ConstView a, ConstView b, const ops::MatmulOptions& options) {
  if (out.count() == 0) return;
  if (options.before_gelu || options.gelu_of) {
    ops::MatmulOptions product = options;
    product.before_gelu = {};
    product.gelu_of = {};
    cpu::matmul(options.before_gelu ? options.before_gelu : out, a, b, product);
    if (options.before_gelu) return cpu::gelu(out, options.before_gelu, ops::Gelu::Tanh);
    return cpu::gelu_backward(out, out, options.gelu_of, ops::Gelu::Tanh);
  }
  const ProductSizes size(out, a, options.transpose);
  const bool library = a.dtype() != DType::F64;
  const bool is_short = size_of(a.dtype()) < size_of(DType::F32);
  // In F32 the library's product of one row already takes no longer than reading the matrix.
  if (is_short && size.batch == 1 && size.M == 1 && options.transpose == ops::Transpose::Second)
    row_product(out, a, b, options);
  else if (library && size.K > 0)
    library_product(out, a, b, options);
  else
    plain_product(out, a, b, options);
}

}  // namespace aisc::cpu
