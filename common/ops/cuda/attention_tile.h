// Tiles of 16-bit elements in shared memory, and the products that one warp computes of them on the
// tensor cores. A tile's rows are tokens, its columns those of a head. A warp's result has 16 M
// rows and 8 N columns: M x N fragments of 4 numbers a lane (gpu/intrinsics.h), element e of which
// is at row 8 (e / 2) + lane / 4 and column 2 (lane % 4) + e % 2.
//
// Fragments are read by load_matrices from eight rows at a time, 16 bytes of each. Rows are padded
// by 16 bytes, so that those eight lie in different banks; the addresses of all reads of a tile are
// then one register and constants.
#pragma once

#include <gpu/intrinsics.h>
#include <cstdint>

#include "common/core/dtype.h"
#include "common/ops/cuda/numbers.h"

namespace aisc::cuda {

// What tensor cores do with a type.
template <class T>
struct TensorCores;
template <>
struct TensorCores<BFloat16> {
  static __device__ __forceinline__ void multiply(float (&d)[4], const std::uint32_t (&a)[4],
                                                  const std::uint32_t (&b)[2]) {
    gpu::mma_bf16(d, a, b);
  }
  static __device__ __forceinline__ std::uint32_t pack(float low, float high) {
    return gpu::pack_bf16(low, high);
  }
};
template <>
struct TensorCores<Float16> {
  static __device__ __forceinline__ void multiply(float (&d)[4], const std::uint32_t (&a)[4],
                                                  const std::uint32_t (&b)[2]) {
    gpu::mma_f16(d, a, b);
  }
  static __device__ __forceinline__ std::uint32_t pack(float low, float high) {
    return gpu::pack_f16(low, high);
  }
};

using Bits = std::uint16_t;  // of an element

template <int columns>
inline constexpr int kTileRow = columns + 8;  // elements from a row to the next

// Begins to copy the first `count` tokens at `from`, `stride` elements apart, D columns each, into
// a tile (rows, columns); the rest of it becomes 0. All `threads` of the block take part.
template <int rows, int columns, int threads>
__device__ __forceinline__ void load_tile(Bits* tile, const Bits* from, std::int64_t stride,
                                          int count, int D) {
  constexpr int kPieces = columns / 8, kRowsAtOnce = threads / kPieces;
  const int first = static_cast<int>(threadIdx.x) / kPieces;
  const int column = static_cast<int>(threadIdx.x) % kPieces * 8;
  const Bits* piece = from + first * stride + column;
  if (threads % kPieces != 0 && first >= kRowsAtOnce) return;
#pragma unroll
  for (int i = 0; i < rows; i += kRowsAtOnce) {
    const int row = first + i;
    if (rows % kRowsAtOnce != 0 && row >= rows) break;
    const bool valid = row < count && column < D;
    gpu::copy_async_16(tile + row * kTileRow<columns> + column, piece, valid);
    piece += kRowsAtOnce * stride;
  }
}

// Where this lane begins to read fragments in a tile: of a left factor, or of a right factor that
// is read along its columns; and of a right factor whose rows are read along.
template <int columns>
__device__ __forceinline__ int left_lane() {
  const int lane = threadIdx.x % 32;
  return lane % 16 * kTileRow<columns> + lane / 16 * 8;
}
template <int columns>
__device__ __forceinline__ int right_lane() {
  const int lane = threadIdx.x % 32;
  return (lane / 16 * 8 + lane % 8) * kTileRow<columns> + lane / 8 % 2 * 8;
}

// The fragments of 16 M rows of a left factor at columns 16 k ..+15; `left` is where left_lane
// says.
template <int columns, int M>
__device__ __forceinline__ void load_left(std::uint32_t (&fragments)[M][4], const Bits* left,
                                          int k) {
#pragma unroll
  for (int m = 0; m < M; ++m)
    gpu::load_matrices(fragments[m], left + 16 * m * kTileRow<columns> + 16 * k);
}

// d (16 M, 8 N) += the products of rows: a (16 M, 16) times 8 N rows at `right`, columns 16 k
// ..+15.
template <class T, int columns, int M, int N>
__device__ __forceinline__ void multiply_rows(float (&d)[M][N][4], const std::uint32_t (&a)[M][4],
                                              const Bits* right, int k) {
#pragma unroll
  for (int n = 0; n < N; n += 2) {
    std::uint32_t b[4];
    gpu::load_matrices(b, right + 8 * n * kTileRow<columns> + 16 * k);
    const std::uint32_t low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
#pragma unroll
    for (int m = 0; m < M; ++m) {
      TensorCores<T>::multiply(d[m][n], a[m], low);
      TensorCores<T>::multiply(d[m][n + 1], a[m], high);
    }
  }
}

// d (16 M, 8 N) = left (16 M, columns) right (8 N, columns)^T: the scores of queries and keys.
template <class T, int columns, int M, int N>
__device__ __forceinline__ void products_of_rows(float (&d)[M][N][4], const Bits* left,
                                                 const Bits* right) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) d[m][n][e] = 0;
#pragma unroll 2  // more would be loaded ahead than there are registers
  for (int k = 0; k < columns / 16; ++k) {
    std::uint32_t a[M][4];
    load_left<columns>(a, left, k);
    multiply_rows<T, columns>(d, a, right, k);
  }
}

// d (16 M, columns) += p (16 M, 8 J) right (8 J, columns), with p rounded to T: the fragments of a
// result are those of a left factor, two columns to a word.
template <class T, int columns, int M, int J>
__device__ __forceinline__ void add_product(float (&d)[M][columns / 8][4],
                                            const float (&p)[M][J][4], const Bits* right) {
#pragma unroll
  for (int j = 0; j < J; j += 2) {
    std::uint32_t a[M][4];
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        a[m][i] = TensorCores<T>::pack(p[m][j + i / 2][i % 2 * 2], p[m][j + i / 2][i % 2 * 2 + 1]);
#pragma unroll
    for (int n = 0; n < columns / 8; n += 2) {
      std::uint32_t b[4];
      gpu::load_matrices_transposed(b, right + 8 * j * kTileRow<columns> + 8 * n);
      const std::uint32_t low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
#pragma unroll
      for (int m = 0; m < M; ++m) {
        TensorCores<T>::multiply(d[m][n], a[m], low);
        TensorCores<T>::multiply(d[m][n + 1], a[m], high);
      }
    }
  }
}

// The scores of keys that a query does not see become minus infinity, whose exponential is exactly
// 0. Rows are queries, columns keys from `first_key` on; of all keys, a row of this lane sees the
// first `seen`.
template <int M, int N>
__device__ __forceinline__ void hide_unseen(float (&s)[M][N][4], const int (&seen)[M][2],
                                            int first_key) {
  const int first = first_key + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (8 * n + e % 2 >= seen[m][e / 2] - first) s[m][n][e] = -INFINITY;
}

// Rounds factor * d (16 M, columns) to T into this warp's rows of a tile, and copies the first
// `count` of them, D columns each, to where rows are `stride` elements apart. Nobody but this warp
// may be using these rows of the tile.
template <class T, int columns, int M>
__device__ __forceinline__ void store_rows(Bits* to, std::int64_t stride, int count, int D,
                                           Bits* tile, const float (&d)[M][columns / 8][4],
                                           const float (&factors)[M][2]) {
  const int lane = threadIdx.x % 32;
  __syncwarp();
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Bits* row = tile + (16 * m + 8 * half + lane / 4) * kTileRow<columns> + lane % 4 * 2;
      const float factor = factors[m][half];
#pragma unroll
      for (int n = 0; n < columns / 8; ++n)
        *reinterpret_cast<std::uint32_t*>(row + 8 * n) =
            TensorCores<T>::pack(d[m][n][2 * half] * factor, d[m][n][2 * half + 1] * factor);
    }
  __syncwarp();
  constexpr int kPieces = columns / 8;
  for (int i = lane; i < 16 * M * kPieces; i += 32) {
    const int row = i / kPieces, column = i % kPieces * 8;
    if (row < count && column < D)
      *reinterpret_cast<uint4*>(to + row * stride + column) =
          *reinterpret_cast<const uint4*>(tile + row * kTileRow<columns> + column);
  }
}

// The same without a tile, for sums that are kept in F32 or added to: to = [to +] factor * d. Four
// lanes have 8 neighbours of a row, in F32 a whole sector of memory.
template <int columns, int M, class G>
__device__ __forceinline__ void store_sums(G* to, std::int64_t stride, int count, int D,
                                           bool accumulate, const float (&d)[M][columns / 8][4],
                                           float factor) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = 16 * m + 8 * half + lane / 4;
      if (row >= count) continue;
#pragma unroll
      for (int n = 0; n < columns / 8; ++n) {
        G* at = to + row * stride + 8 * n + lane % 4 * 2;
        if (8 * n >= D) break;
        float sums[2] = {};
        if (accumulate) load<2>(sums, at);
        sums[0] += d[m][n][2 * half] * factor;
        sums[1] += d[m][n][2 * half + 1] * factor;
        store<2>(at, sums);
      }
    }
}

}  // namespace aisc::cuda
