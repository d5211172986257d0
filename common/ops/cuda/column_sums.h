// Sums over rows, as gradients of biases and gains need them, without atomic additions, so that
// they have the same bits in every run: blocks write the sums of their rows, and a second kernel
// adds those up in their order. How rows are shared out depends on the shape alone.
#pragma once

#include "common/ops/cuda/grid.h"
#include "common/ops/ops.h"

namespace aisc::cuda {

// Rows of a block, a multiple of `unit`, so that there are at most `blocks` blocks of at least
// `unit` rows each.
inline std::int64_t rows_per_block(std::int64_t rows, std::int64_t unit, std::int64_t blocks) {
  return std::max<std::int64_t>(1, pieces(rows, unit * blocks)) * unit;
}

constexpr int kSumColumns = 32, kSumWarps = 16;

// out[c] = [out[c] +] the sum of partials[block][c] over the blocks: warps take every kSumWarps-th
// block, lanes a column each.
template <class Out, class S>
__global__ void __launch_bounds__(kSumColumns* kSumWarps)
    add_partials_kernel(Out* out, const S* partials, std::int64_t blocks, std::int64_t stride,
                        std::int64_t columns, ops::Into into) {
  __shared__ S sums[kSumWarps][kSumColumns];
  const unsigned lane = threadIdx.x % kSumColumns, warp = threadIdx.x / kSumColumns;
  const std::int64_t c = std::int64_t{blockIdx.x} * kSumColumns + lane;
  S sum = 0;
  if (c < columns) {
#pragma unroll 4
    for (std::int64_t block = warp; block < blocks; block += kSumWarps)
      sum += partials[block * stride + c];
  }
  sums[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || c >= columns) return;
  for (int w = 1; w < kSumWarps; ++w) sum += sums[w][lane];
  if (into == ops::Into::Accumulate) sum += static_cast<S>(widen(out[c]));
  out[c] = narrow<Out>(sum);
}

// out (columns) from partials (blocks, stride), the columns at `partials` and after it.
template <class S>
void add_partials(const char* what, const View& out, const S* partials, std::int64_t blocks,
                  std::int64_t stride, ops::Into into) {
  dispatch(out.dtype(), [&](auto type) {
    using Out = decltype(type);
    if constexpr (sizeof(S) == 4 ? sizeof(Out) <= 4 : sizeof(Out) == 8)
      launch_kernel(what, stream_of(out), blocks_for(out.count(), kSumColumns),
                    kSumColumns * kSumWarps, 0, add_partials_kernel<Out, S>, elements<Out>(out),
                    partials, blocks, stride, out.count(), into);
  });
}

// partials[block][c] = the sum over the block's rows of what terms.add(sums, row, c) adds to
// sums[q][0 .. n) for columns c .. c + n, for quantity q of Terms::kQuantities: row q * columns of
// the block's partials. Lanes have n columns each, the block's warps every kColumnWarps-th row.
constexpr int kColumnWarps = 8;

template <int n, class S, class Terms>
__global__ void __launch_bounds__(32 * kColumnWarps)
    column_sums_kernel(S* partials, std::int64_t rows, std::int64_t columns,
                       std::int64_t block_rows, Terms terms) {
  constexpr int kQuantities = Terms::kQuantities;
  __shared__ S of_warps[kColumnWarps][kQuantities][n][32];
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const std::int64_t c = (std::int64_t{blockIdx.x} * 32 + lane) * n;
  const std::int64_t first = std::int64_t{blockIdx.y} * block_rows;
  const std::int64_t last = first + block_rows < rows ? first + block_rows : rows;
  S sums[kQuantities][n] = {};
  if (c < columns) {
#pragma unroll 4
    for (std::int64_t row = first + warp; row < last; row += kColumnWarps)
      terms.template add<n>(sums, row, c);
  }
#pragma unroll
  for (int q = 0; q < kQuantities; ++q)
#pragma unroll
    for (int k = 0; k < n; ++k) of_warps[warp][q][k][lane] = sums[q][k];
  __syncthreads();
  if (warp > 0 || c >= columns) return;
#pragma unroll
  for (int q = 0; q < kQuantities; ++q) {
#pragma unroll
    for (int k = 0; k < n; ++k)
      for (int w = 1; w < kColumnWarps; ++w) sums[q][k] += of_warps[w][q][k][lane];
    store<n>(partials + (std::int64_t{blockIdx.y} * kQuantities + q) * columns + c, sums[q]);
  }
}

// The partial sums of all columns, as a tensor (blocks, Terms::kQuantities * columns). `n` divides
// the columns.
template <int n, class S, class Terms>
Tensor column_partials(const char* what, const ConstView& x, const Terms& terms) {
  constexpr std::int64_t kBlocks = 2048, kMinRows = 8 * kColumnWarps;
  const std::int64_t rows = x.shape()[0], columns = x.shape()[1];
  const std::int64_t across = std::max<std::int64_t>(1, pieces(columns, 32 * n));
  const std::int64_t block_rows =
      rows_per_block(rows, kMinRows, std::max<std::int64_t>(1, kBlocks / across));
  const std::int64_t blocks = pieces(rows, block_rows);
  Tensor partials({blocks, Terms::kQuantities * columns}, DTypeOf<S>::value, x.device(),
                  Purpose::Workspace);
  launch_kernel(what, stream_of(x),
                dim3(static_cast<unsigned>(across), static_cast<unsigned>(blocks)),
                32 * kColumnWarps, 0, column_sums_kernel<n, S, Terms>, elements<S>(partials.view()),
                rows, columns, block_rows, terms);
  return partials;
}

}  // namespace aisc::cuda
