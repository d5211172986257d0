// Attention on the ordinary cores, for F32 and F64, and for what tensor cores cannot take:
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

using ops::Into;

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

// The rows of a head of a sample.
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

// What a block works on: a tile of so many tokens of a head, and 64 of the head's columns.
template <class T>
struct Place {
  __device__ __forceinline__ Place(const AttentionSizes& sizes, int tokens)
      : tiles((tokens + kTile - 1) / kTile),
        index(static_cast<int>(blockIdx.x) / tiles),
        tile(static_cast<int>(blockIdx.x) % tiles),
        columns(static_cast<int>(blockIdx.y) * kTile),
        b(index / sizes.H),
        h(index % sizes.H),
        statistics(std::int64_t{index} * sizes.T),
        z(sizes) {}

  __device__ __forceinline__ Rows<T> queries(const T* q) const {
    return {q + z.q.at(b, h), z.q.token, z.T, z.D};
  }
  __device__ __forceinline__ Rows<T> keys(const T* kv) const {
    return {kv + z.kv.at(b, h), z.kv.token, z.K, z.D};
  }
  __device__ __forceinline__ Rows<T> values(const T* kv) const { return keys(kv + z.value); }
  __device__ __forceinline__ Rows<T> outs(const T* out) const {
    return {out + z.out.at(b, h), z.out.token, z.T, z.D};
  }

  int tiles, index, tile, columns;
  std::int64_t b, h, statistics;
  const AttentionSizes& z;
};

// to = [to +] the numbers of this thread, times `factor`, in the tile that begins at row `first` of
// `count`.
template <class G, class S>
__device__ __forceinline__ void store_tile(G* to, std::int64_t stride, int first, int count,
                                           int columns, int D, const S (&d)[4][4], S factor,
                                           Into into) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int token = first + 4 * row() + i;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int at = columns + 4 * column() + j;
      if (token >= count || at >= D) continue;
      G& element = to[token * stride + at];
      S sum = d[i][j] * factor;
      if (into == Into::Accumulate) sum += widen(element);
      element = narrow<G>(sum);
    }
  }
}

template <class T>
using Sum = Accumulator<T>;
template <class S>
constexpr S kLowest = std::numeric_limits<S>::lowest();

// The keys that the queries of this thread see.
__device__ __forceinline__ void count_seen(int (&seen)[4], const SeenKeys& mask,
                                           std::int64_t sample, int first_query) {
#pragma unroll
  for (int i = 0; i < 4; ++i) seen[i] = mask.seen(sample, first_query + 4 * row() + i);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    plain_forward(T* out, Sum<T>* log_sum_exp, const T* q, const T* kv, AttentionSizes z,
                  SeenKeys mask) {
  using S = Sum<T>;
  const Place<T> place(z, z.T);
  const Shared<S> shared;
  const int first = (place.tiles - 1 - place.tile) * kTile;  // longest first
  const Rows<T> queries = place.queries(q), keys = place.keys(kv), values = place.values(kv);
  const S scale = static_cast<S>(z.scale);

  S o[4][4] = {}, maximum[4], total[4] = {};
  int seen[4];
  count_seen(seen, mask, place.b, first);
#pragma unroll  // minus infinity less itself, of a row that sees nothing yet, would not be a number
  for (int i = 0; i < 4; ++i) maximum[i] = kLowest<S>;
  const int end = mask.seen(place.b, smaller(first + kTile, z.T) - 1);
  for (int key = 0; key < end; key += kTile) {
    S s[4][4];
    products_of_rows(s, queries.from(first), keys.from(key), shared);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      S highest = maximum[i];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        s[i][j] = key + 4 * column() + j < seen[i] ? s[i][j] * scale : minus_infinity<S>();
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
    if (total[i] == 0) total[i] = 1;  // of a query that sees no key, whose output is 0
#pragma unroll
    for (int j = 0; j < 4; ++j) o[i][j] /= total[i];
  }
  store_tile(out + z.out.at(place.b, place.h), z.out.token, first, z.T, place.columns, z.D, o, S(1),
             Into::Overwrite);
}

// The probabilities (64 queries, 64 keys) of a pair of tiles, and dS; `s` holds the products of
// queries and keys, `ds` those of dO and values.
template <class S>
__device__ __forceinline__ void recompute(S (&s)[4][4], S (&ds)[4][4], const S* log_sum_exp,
                                          const S* delta, const int (&seen)[4], int first_query,
                                          int first_key, int T, S scale) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int query = first_query + 4 * row() + i;
    const S sum = query < T ? log_sum_exp[query] : minus_infinity<S>();
    const S shift = query < T ? delta[query] : 0;
    const int keys = sum == minus_infinity<S>() ? 0 : seen[i];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const bool sees = first_key + 4 * column() + j < keys;
      s[i][j] = sees ? exp_of(s[i][j] * scale - sum) : 0;
      ds[i][j] = sees ? s[i][j] * (ds[i][j] - shift) : 0;
    }
  }
}

// Gradients are of type G: T, or the type of its sums.
template <class T, class G>
__global__ void __launch_bounds__(kThreads)
    plain_gradients_of_keys(G* dkv, const T* dout, const T* q, const T* kv,
                            const Sum<T>* log_sum_exp, const Sum<T>* delta, AttentionSizes z,
                            SeenKeys mask, Into into) {
  using S = Sum<T>;
  const Place<T> place(z, z.K);
  const Shared<S> shared;
  const int first = place.tile * kTile;
  const Rows<T> queries = place.queries(q), douts = place.outs(dout);
  const Rows<T> keys = place.keys(kv).from(first), values = place.values(kv).from(first);
  const S scale = static_cast<S>(z.scale);
  S dk[4][4] = {}, dv[4][4] = {};
  for (int query = mask.first_to_see(place.b, first) / kTile * kTile; query < z.T; query += kTile) {
    S s[4][4], ds[4][4];
    products_of_rows(s, queries.from(query), keys, shared);
    products_of_rows(ds, douts.from(query), values, shared);
    int seen[4];
    count_seen(seen, mask, place.b, query);
    recompute(s, ds, log_sum_exp + place.statistics, delta + place.statistics, seen, query, first,
              z.T, scale);
    put(s, shared);
    add_product(dv, douts.from(query), place.columns, shared);
    put(ds, shared);
    add_product(dk, queries.from(query), place.columns, shared);
  }
  G* to = dkv + z.kv.at(place.b, place.h);
  store_tile(to, z.kv.token, first, z.K, place.columns, z.D, dk, scale, into);
  store_tile(to + z.value, z.kv.token, first, z.K, place.columns, z.D, dv, S(1), into);
}

template <class T, class G>
__global__ void __launch_bounds__(kThreads)
    plain_gradients_of_queries(G* dq, const T* dout, const T* q, const T* kv,
                               const Sum<T>* log_sum_exp, const Sum<T>* delta, AttentionSizes z,
                               SeenKeys mask, Into into) {
  using S = Sum<T>;
  const Place<T> place(z, z.T);
  const Shared<S> shared;
  const int first = (place.tiles - 1 - place.tile) * kTile;  // longest first
  const Rows<T> queries = place.queries(q).from(first), douts = place.outs(dout).from(first);
  const Rows<T> keys = place.keys(kv), values = place.values(kv);
  const S scale = static_cast<S>(z.scale);
  const int end = mask.seen(place.b, smaller(first + kTile, z.T) - 1);
  S sums[4][4] = {};
  int seen[4];
  count_seen(seen, mask, place.b, first);
  for (int key = 0; key < end; key += kTile) {
    S s[4][4], ds[4][4];
    products_of_rows(s, queries, keys.from(key), shared);
    products_of_rows(ds, douts, values.from(key), shared);
    recompute(s, ds, log_sum_exp + place.statistics, delta + place.statistics, seen, first, key,
              z.T, scale);
    put_transposed(ds, shared);
    add_product(sums, keys.from(key), place.columns, shared);
  }
  store_tile(dq + z.q.at(place.b, place.h), z.q.token, first, z.T, place.columns, z.D, sums, scale,
             into);
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

// One block for each tile of so many tokens of each head, and each 64 of its columns.
dim3 blocks_of(const AttentionSizes& z, int tokens) {
  return dim3(attention_blocks(z, tokens, kTile), blocks_for(z.D, kTile));
}

}  // namespace

void plain_attention(View out, View log_sum_exp, ConstView q, ConstView kv, const AttentionSizes& z,
                     const SeenKeys& mask) {
  dispatch(q.dtype(), [&](auto type) {
    using T = decltype(type);
    launch_kernel("attention", stream_of(out), blocks_of(z, z.T), kThreads, Shared<Sum<T>>::kBytes,
                  plain_forward<T>, elements<T>(out), elements<Sum<T>>(log_sum_exp), elements<T>(q),
                  elements<T>(kv), z, mask);
  });
}

void plain_attention_backward(View dq, View dkv, ConstView dout, ConstView q, ConstView kv,
                              ConstView log_sum_exp, ConstView delta, const AttentionSizes& z,
                              const SeenKeys& mask, Into into) {
  dispatch(q.dtype(), [&](auto type) {
    using T = decltype(type);
    const auto run = [&]<class G>(G /*type*/) {
      const auto launch = [&](auto kernel, View to, int tokens) {
        launch_kernel("attention_backward", stream_of(to), blocks_of(z, tokens), kThreads,
                      Shared<Sum<T>>::kBytes, kernel, elements<G>(to), elements<T>(dout),
                      elements<T>(q), elements<T>(kv), elements<Sum<T>>(log_sum_exp),
                      elements<Sum<T>>(delta), z, mask, into);
      };
      launch(plain_gradients_of_keys<T, G>, dkv, z.K);
      launch(plain_gradients_of_queries<T, G>, dq, z.T);
    };
    if (dq.dtype() == q.dtype())
      run(T());
    else
      run(Sum<T>());
  });
}

void attention_delta(View delta, ConstView dout, ConstView out, const AttentionSizes& z) {
  dispatch(out.dtype(), [&](auto type) {
    using T = decltype(type);
    launch_kernel("attention_backward", stream_of(delta),
                  blocks_for(z.B * z.T * z.H, kThreads / 32), kThreads, 0, deltas<T>,
                  elements<Sum<T>>(delta), elements<T>(dout), elements<T>(out), z);
  });
}

}  // namespace aisc::cuda
