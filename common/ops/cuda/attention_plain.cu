// Causal attention on the ordinary cores, for F32 and F64, and for what tensor cores cannot take:
// heads of any size, rows that begin anywhere. Blocks of 64 queries meet blocks of 64 keys with the
// online softmax; every product is one of (64, 64) tiles, of which each of 256 threads has 4 x 4
// numbers, fed from shared memory 16 terms at a time. A block makes 64 columns of its results; for
// wider heads several blocks compute the same scores.
//
// The gradients are those of attention_backward.cu, in two kernels likewise: each is written once,
// and every run has the same bits.
//
// Operations: as there, for D up to 64. The multiply-adds of the ordinary cores are the limit, then
// the reads of shared memory that feed them. Share of the peak: not measured yet.
#include "common/ops/cuda/attention.h"
#include "common/ops/cuda/grid.h"
#include "common/ops/cuda/reduce.h"

namespace aisc::cuda {
namespace {

constexpr int kTile = 64, kDepth = 16;  // with kThreads, 256, of a block
constexpr int kRow = kTile + 4;  // elements of a row in shared memory: 16 bytes of padding or more

// Four neighbours in shared memory, read at once.
template <class S>
struct alignas(16) Four {
  S values[4];
};

// The shared memory of a block: the terms of two factors, and a tile of probabilities.
template <class S>
struct Shared {
  __device__ __forceinline__ Shared()
      : left(gpu::dynamic_shared<S>()), right(left + kDepth * kRow), tile(right + kDepth * kRow) {}
  static constexpr std::size_t kBytes = sizeof(S) * kRow * (2 * kDepth + kTile);

  S *left, *right;  // (16, 64)
  S* tile;          // (64, 64)
};

// A head of a sample, and where its rows are in tensors of T tokens.
template <class T>
struct Rows {
  const T* first;
  std::int64_t stride;
  int count, D;  // rows beyond `count` and columns beyond D are zeros

  __device__ __forceinline__ Rows from(int row) const {
    return {first + row * stride, stride, count - row, D};
  }
  __device__ __forceinline__ Accumulator<T> operator()(int row, int column) const {
    return row < count && column < D ? widen(first[row * stride + column]) : 0;
  }
};

// This thread's rows and columns of a tile are 4 row() + 0..3 and 4 column() + 0..3.
__device__ __forceinline__ int row() { return static_cast<int>(threadIdx.x) / 16; }
__device__ __forceinline__ int column() { return static_cast<int>(threadIdx.x) % 16; }

// d (64, 64) += left^T (64, 16) right (16, 64), both in shared memory.
template <class S>
__device__ __forceinline__ void multiply(S (&d)[4][4], const S* left, const S* right) {
#pragma unroll
  for (int k = 0; k < kDepth; ++k) {
    const auto a = *reinterpret_cast<const Four<S>*>(left + k * kRow + 4 * row());
    const auto b = *reinterpret_cast<const Four<S>*>(right + k * kRow + 4 * column());
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) d[i][j] += a.values[i] * b.values[j];
  }
}

// d (64, 64) = left (64, D) right (64, D)^T, all columns of the head.
template <class S, class T>
__device__ __forceinline__ void products_of_rows(S (&d)[4][4], const Rows<T>& left,
                                                 const Rows<T>& right, const Shared<S>& shared) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) d[i][j] = 0;
  for (int k = 0; k < left.D; k += kDepth) {
    __syncthreads();  // nobody still reads what was there
#pragma unroll
    for (int i = threadIdx.x; i < kTile * kDepth; i += kThreads) {
      const int term = i % kDepth, token = i / kDepth;
      shared.left[term * kRow + token] = left(token, k + term);
      shared.right[term * kRow + token] = right(token, k + term);
    }
    __syncthreads();
    multiply(d, shared.left, shared.right);
  }
}

// d (64, 64) += tile^T (64, 64) right (64, 64): the columns of `right` from `first` on, and the
// tile in shared memory that all threads have written, and may write again afterwards.
template <class S, class T>
__device__ __forceinline__ void add_product(S (&d)[4][4], const Rows<T>& right, int first,
                                            const Shared<S>& shared) {
  for (int k = 0; k < kTile; k += kDepth) {
    __syncthreads();  // nobody still reads what was there; the tile is written
#pragma unroll
    for (int i = threadIdx.x; i < kTile * kDepth; i += kThreads)
      shared.right[i / kTile * kRow + i % kTile] = right(k + i / kTile, first + i % kTile);
    __syncthreads();
    multiply(d, shared.tile + k * kRow, shared.right);
  }
  __syncthreads();
}

// Puts a tile into shared memory as a left factor of add_product: as it is, for its transpose times
// what comes, or transposed.
template <class S>
__device__ __forceinline__ void put(const S (&d)[4][4], const Shared<S>& shared) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) shared.tile[(4 * row() + i) * kRow + 4 * column() + j] = d[i][j];
}
template <class S>
__device__ __forceinline__ void put_transposed(const S (&d)[4][4], const Shared<S>& shared) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) shared.tile[(4 * column() + j) * kRow + 4 * row() + i] = d[i][j];
}

// What a block works on: a tile of a head, and 64 of the head's columns.
template <class T>
struct Place {
  __device__ __forceinline__ explicit Place(const AttentionSizes& z)
      : tiles((z.T + kTile - 1) / kTile),
        index(static_cast<int>(blockIdx.x) / tiles),
        tile(static_cast<int>(blockIdx.x) % tiles),
        columns(static_cast<int>(blockIdx.y) * kTile),
        qkv(index / z.H * std::int64_t{z.T} * z.qkv_row + index % z.H * 3 * std::int64_t{z.D}),
        out(index / z.H * std::int64_t{z.T} * z.out_row + index % z.H * std::int64_t{z.D}),
        statistics(std::int64_t{index} * z.T) {}

  int tiles, index, tile, columns;
  std::int64_t qkv, out, statistics;  // where the head begins
};

// The numbers of this thread, times `factor`, rounded to T, into the tile that begins at row
// `first`.
template <class T, class S>
__device__ __forceinline__ void store_tile(T* to, std::int64_t stride, int first, int columns,
                                           const AttentionSizes& z, const S (&d)[4][4], S factor) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int token = first + 4 * row() + i;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int at = columns + 4 * column() + j;
      if (token < z.T && at < z.D) to[token * stride + at] = narrow<T>(d[i][j] * factor);
    }
  }
}

template <class T>
using Sum = Accumulator<T>;

template <class T>
__global__ void __launch_bounds__(kThreads)
    plain_forward(T* out, Sum<T>* log_sum_exp, const T* qkv, AttentionSizes z) {
  using S = Sum<T>;
  const Place<T> place(z);
  const Shared<S> shared;
  const int first = (place.tiles - 1 - place.tile) * kTile;  // longest first
  const Rows<T> queries{qkv + place.qkv, z.qkv_row, z.T, z.D};
  const Rows<T> keys{queries.first + z.D, z.qkv_row, z.T, z.D};
  const Rows<T> values{keys.first + z.D, z.qkv_row, z.T, z.D};
  const S scale = static_cast<S>(z.scale);

  S o[4][4] = {}, maximum[4], total[4] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) maximum[i] = minus_infinity<S>();
  for (int key = 0; key <= first; key += kTile) {
    S s[4][4];
    products_of_rows(s, queries.from(first), keys.from(key), shared);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      S highest = maximum[i];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const bool future = key + 4 * column() + j > first + 4 * row() + i;
        s[i][j] = future ? minus_infinity<S>() : s[i][j] * scale;
        highest = larger(highest, s[i][j]);
      }
      highest = warp_reduce<16>(highest, Larger());   // over the threads of a row
      const S shrink = exp_of(maximum[i] - highest);  // 0 in the first block
      maximum[i] = highest;
      total[i] *= shrink;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        s[i][j] = exp_of(s[i][j] - highest);
        total[i] += s[i][j];
        o[i][j] *= shrink;
      }
    }
    put_transposed(s, shared);
    add_product(o, values.from(key), place.columns, shared);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    total[i] = warp_reduce<16>(total[i], Add());
    const int query = first + 4 * row() + i;
    if (column() == 0 && place.columns == 0 && query < z.T)
      log_sum_exp[place.statistics + query] = maximum[i] + log_of(total[i]);
#pragma unroll
    for (int j = 0; j < 4; ++j) o[i][j] /= total[i];
  }
  store_tile(out + place.out, z.out_row, first, place.columns, z, o, S(1));
}

// The probabilities (64 queries, 64 keys) of a pair of tiles, and dS; `s` holds the products of
// queries and keys, `ds` those of dO and values.
template <class S>
__device__ __forceinline__ void recompute(S (&s)[4][4], S (&ds)[4][4], const S* log_sum_exp,
                                          const S* delta, int first_query, int first_key, int T,
                                          S scale) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int query = first_query + 4 * row() + i;
    const S sum = query < T ? log_sum_exp[query] : 0, shift = query < T ? delta[query] : 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const bool seen = query < T && first_key + 4 * column() + j <= query;
      s[i][j] = seen ? exp_of(s[i][j] * scale - sum) : 0;
      ds[i][j] = seen ? s[i][j] * (ds[i][j] - shift) : 0;
    }
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    plain_gradients_of_keys(T* dqkv, const T* dout, const T* qkv, const Sum<T>* log_sum_exp,
                            const Sum<T>* delta, AttentionSizes z) {
  using S = Sum<T>;
  const Place<T> place(z);
  const Shared<S> shared;
  const int first = place.tile * kTile;
  const Rows<T> queries{qkv + place.qkv, z.qkv_row, z.T, z.D};
  const Rows<T> keys = Rows<T>{queries.first + z.D, z.qkv_row, z.T, z.D}.from(first);
  const Rows<T> values = Rows<T>{queries.first + 2 * z.D, z.qkv_row, z.T, z.D}.from(first);
  const Rows<T> douts{dout + place.out, z.out_row, z.T, z.D};
  const S scale = static_cast<S>(z.scale);
  S dk[4][4] = {}, dv[4][4] = {};
  for (int query = first; query < z.T; query += kTile) {
    S s[4][4], ds[4][4];
    products_of_rows(s, queries.from(query), keys, shared);
    products_of_rows(ds, douts.from(query), values, shared);
    recompute(s, ds, log_sum_exp + place.statistics, delta + place.statistics, query, first, z.T,
              scale);
    put(s, shared);
    add_product(dv, douts.from(query), place.columns, shared);
    put(ds, shared);
    add_product(dk, queries.from(query), place.columns, shared);
  }
  T* to = dqkv + place.qkv + z.D;
  store_tile(to, z.qkv_row, first, place.columns, z, dk, scale);
  store_tile(to + z.D, z.qkv_row, first, place.columns, z, dv, S(1));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    plain_gradients_of_queries(T* dqkv, const T* dout, const T* qkv, const Sum<T>* log_sum_exp,
                               const Sum<T>* delta, AttentionSizes z) {
  using S = Sum<T>;
  const Place<T> place(z);
  const Shared<S> shared;
  const int first = (place.tiles - 1 - place.tile) * kTile;  // longest first
  const Rows<T> queries = Rows<T>{qkv + place.qkv, z.qkv_row, z.T, z.D}.from(first);
  const Rows<T> keys{qkv + place.qkv + z.D, z.qkv_row, z.T, z.D};
  const Rows<T> values{keys.first + z.D, z.qkv_row, z.T, z.D};
  const Rows<T> douts = Rows<T>{dout + place.out, z.out_row, z.T, z.D}.from(first);
  const S scale = static_cast<S>(z.scale);
  S dq[4][4] = {};
  for (int key = 0; key <= first; key += kTile) {
    S s[4][4], ds[4][4];
    products_of_rows(s, queries, keys.from(key), shared);
    products_of_rows(ds, douts, values.from(key), shared);
    recompute(s, ds, log_sum_exp + place.statistics, delta + place.statistics, first, key, z.T,
              scale);
    put_transposed(ds, shared);
    add_product(dq, keys.from(key), place.columns, shared);
  }
  store_tile(dqkv + place.qkv, z.qkv_row, first, place.columns, z, dq, scale);
}

// One warp a row; the rows of a token's heads lie side by side. Bytes: those of dout and out.
template <class T>
__global__ void __launch_bounds__(kThreads)
    deltas(Sum<T>* delta, const T* dout, const T* out, AttentionSizes z) {
  const int lane = threadIdx.x % 32;
  const std::int64_t row = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) / 32;  // (B, T, H)
  if (row >= z.B * z.T * z.H) return;
  Sum<T> sum = 0;
  for (int d = lane; d < z.D; d += 32)
    sum += widen(out[row * z.D + d]) * widen(dout[row * z.D + d]);
  sum = warp_reduce(sum, Add());
  const std::int64_t token = row / z.H, h = row % z.H, b = token / z.T;
  if (lane == 0) delta[(b * z.H + h) * z.T + token % z.T] = sum;
}

// One block for each tile of each head and each 64 of its columns.
dim3 blocks_of(const AttentionSizes& z) {
  return dim3(attention_blocks(z, kTile), static_cast<unsigned>((z.D + kTile - 1) / kTile));
}

}  // namespace

void plain_attention(View out, View log_sum_exp, ConstView qkv, const AttentionSizes& z) {
  dispatch(qkv.dtype(), [&](auto type) {
    using T = decltype(type);
    launch_kernel("causal_attention", stream_of(out), blocks_of(z), kThreads,
                  Shared<Sum<T>>::kBytes, plain_forward<T>, elements<T>(out),
                  elements<Sum<T>>(log_sum_exp), elements<T>(qkv), z);
  });
}

void plain_attention_backward(View dqkv, ConstView dout, ConstView qkv, ConstView log_sum_exp,
                              ConstView delta, const AttentionSizes& z) {
  dispatch(qkv.dtype(), [&](auto type) {
    using T = decltype(type);
    const cudaStream_t stream = stream_of(dqkv);
    for (const auto kernel : {plain_gradients_of_keys<T>, plain_gradients_of_queries<T>})
      launch_kernel("causal_attention_backward", stream, blocks_of(z), kThreads,
                    Shared<Sum<T>>::kBytes, kernel, elements<T>(dqkv), elements<T>(dout),
                    elements<T>(qkv), elements<Sum<T>>(log_sum_exp), elements<Sum<T>>(delta), z);
  });
}

void attention_delta(View delta, ConstView dout, ConstView out, const AttentionSizes& z) {
  dispatch(out.dtype(), [&](auto type) {
    using T = decltype(type);
    launch_kernel("causal_attention_backward", stream_of(delta),
                  blocks_for(z.B * z.T * z.H, kThreads / 32), kThreads, 0, deltas<T>,
                  elements<Sum<T>>(delta), elements<T>(dout), elements<T>(out), z);
  });
}

}  // namespace aisc::cuda
