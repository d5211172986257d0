// out = op(a) op(b) in blocks, by threads: what every way to multiply a block has in common.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

#include "common/ops/cpu/products.h"

namespace aisc::cpu {

// Of a block of `out`, and the terms that are added to it in one turn.
inline constexpr std::int64_t kBlockRows = 48, kBlockColumns = 128, kBlockDepth = 128;

// One factor, seen as op(x): element (i, j) of matrix `batch` is data[batch * size + i * row + j *
// column].
template <class T>
struct Factor {
  Factor(const T* data_, std::int64_t rows, std::int64_t columns, bool transposed)
      : data(data_),
        size(rows * columns),
        row(transposed ? 1 : columns),
        column(transposed ? rows : 1) {}

  // From element (i, j) of matrix `batch` on.
  Factor from(std::int64_t batch, std::int64_t i, std::int64_t j) const {
    Factor part = *this;
    part.data += batch * size + i * row + j * column;
    return part;
  }

  const T* data;
  std::int64_t size, row, column;
};

// Block, made for (rows, columns), holds sums of type Block::Sum that begin as 0:
//   add(left, right, depth)   sums += left (rows, depth) right (depth, columns)
//   at(i, j)                  the sum
template <class T, class Out, class Block>
void blocked_product(View out, ConstView a, ConstView b, const ops::MatmulOptions& options) {
  using S = typename Block::Sum;
  const ProductSizes size(out, a, options.transpose);
  const std::int64_t batch = size.batch, M = size.M, N = size.N, K = size.K;
  const Factor<T> left(a.data<T>(), M, K, options.transpose == ops::Transpose::First);
  const Factor<T> right(b.data<T>(), K, N, options.transpose == ops::Transpose::Second);
  const bool accumulate = options.into == ops::Into::Accumulate;
  const S alpha = static_cast<S>(options.alpha);
  const T* bias = options.bias ? options.bias.data<T>() : nullptr;
  Out* result = out.data<Out>();

  const std::int64_t row_blocks = (M + kBlockRows - 1) / kBlockRows;
  const std::int64_t column_blocks = (N + kBlockColumns - 1) / kBlockColumns;
#pragma omp parallel for if (2 * batch * M * N * K > 100'000)
  for (std::int64_t block = 0; block < batch * row_blocks * column_blocks; ++block) {
    const std::int64_t matrix = block / (row_blocks * column_blocks);
    const std::int64_t i0 = block / column_blocks % row_blocks * kBlockRows;
    const std::int64_t j0 = block % column_blocks * kBlockColumns;
    const std::int64_t rows = std::min(kBlockRows, M - i0);
    const std::int64_t columns = std::min(kBlockColumns, N - j0);
    Block sums(rows, columns);
    // Before each turn `sums` are those of the first k terms.
    for (std::int64_t k = 0; k < K; k += kBlockDepth)
      sums.add(left.from(matrix, i0, k), right.from(matrix, k, j0), std::min(kBlockDepth, K - k));
    for (std::int64_t i = 0; i < rows; ++i) {
      Out* to = result + (matrix * M + i0 + i) * N + j0;
      for (std::int64_t j = 0; j < columns; ++j) {
        S value = alpha * sums.at(i, j);
        if (bias) value += static_cast<S>(bias[j0 + j]);
        if (accumulate) value += static_cast<S>(to[j]);
        to[j] = static_cast<Out>(value);
      }
    }
  }
}

}  // namespace aisc::cpu
