// The backward pass of attention on tensor cores. With P the probabilities of a query and O
// its output ("FlashAttention", algorithm 4):
//   dV = P^T dO,  dP = dO V^T,  dS = P (dP - delta),  dQ = dS K,  dK = dS^T Q,
// where delta = sum over columns of dO * O, and P = exp(score - log_sum_exp) is computed again.
//
// Two kernels, each of which keeps its sums in registers and writes every gradient once, so that
// nothing is added by atomics and every run has the same bits: one takes a tile of keys and walks
// over the queries from the first that sees one of them, for dK and dV; the other takes a tile of
// queries and walks over the keys that one of them sees, for dQ. Scores and dP are so computed
// twice: 7 products in place of 5, against sums of dQ in F32 that go through memory once for each
// tile of keys.
//
// Both compute with the side that they keep as the left factor: the first has scores of keys (rows)
// and queries (columns), the second of queries and keys. P and dS are then left factors in
// registers for the products that follow.
//
// Operations: 7 D multiply-adds and two exponentials for each query and key it sees; causal
// attention of T tokens has 7 T^2 D / 2 and T^2 a head. Bytes, of gradients in two bytes:
// (14 T + 12 K) D a head, and what is walked over again for each tile of 128, from the L2 cache.
// With T in the hundreds and more the tensor cores are the limit, or the reads of shared memory
// that feed them. On an H200 (./aisc bench gpu; BF16, T = 1024, D = 64) 158 TFLOP/s, counting 5
// products; docs/results/gpu_h200.md says why.
#include <algorithm>

#include "common/core/cuda/cuda_device.h"
#include "common/core/cuda/launch.h"
#include "common/ops/cuda/attention.h"
#include "common/ops/cuda/attention_tile.h"
#include "common/ops/cuda/kernels.h"
#include "common/ops/cuda/reduce.h"

namespace aisc::cuda {
namespace {

constexpr int kRows = 128;  // of the tile that a block keeps
constexpr float kLog2E = 1.4426950408889634f;

// A head of a sample, and where its rows are.
struct Head {
  __device__ __forceinline__ Head(int index, const AttentionSizes& z) : sample(index / z.H) {
    const std::int64_t h = index % z.H;
    q = z.q.at(sample, h);
    kv = z.kv.at(sample, h);
    out = z.out.at(sample, h);
    statistics = std::int64_t{index} * z.T;
  }
  std::int64_t sample, q, kv, out, statistics;
};

// log2 of a query's sum of exponentials. Of one that is not there or sees no key infinity, so that
// its probabilities are 0.
__device__ __forceinline__ float log2_sum_of(const float* log_sum_exp, int query, int T) {
  const float sum = query < T ? log_sum_exp[query] : -INFINITY;
  return sum == -INFINITY ? INFINITY : sum * kLog2E;
}

// Puts factor * d (16 M, columns) into gradients whose rows begin at element `first` of `to`.
template <class T, int columns, int M>
__device__ __forceinline__ void store_gradients(void* to, std::int64_t first, std::int64_t stride,
                                                int count, int D, GradientStore how, Bits* tile,
                                                const float (&d)[M][columns / 8][4], float factor) {
  if (how.in_f32) {
    store_sums<columns>(static_cast<float*>(to) + first, stride, count, D, how.accumulate, d,
                        factor);
  } else if (how.accumulate) {
    store_sums<columns>(static_cast<T*>(to) + first, stride, count, D, true, d, factor);
  } else {
    float factors[M][2];
#pragma unroll
    for (int m = 0; m < M; ++m) factors[m][0] = factors[m][1] = factor;
    store_rows<T, columns>(static_cast<Bits*>(to) + first, stride, count, D, tile, d, factors);
  }
}

// ---- dK and dV ----------------------------------------------------------------------------------

// Fragments of 16 keys a warp, and warps. A wide head leaves registers for the sums of one.
template <int columns>
constexpr int kKeyFragments = columns <= 64 ? 2 : 1;
template <int columns>
constexpr int kKeyThreads = 32 * kRows / (16 * kKeyFragments<columns>);
constexpr int kQueries = 64;    // of the tiles walked over
constexpr int kQueryStep = 32;  // of which a warp takes so many at a time
template <int columns>
constexpr std::size_t kKeyBytes = sizeof(Bits) * kTileRow<columns>*(2 * kRows + 4 * kQueries) +
                                  sizeof(float) * 4 * kQueries + sizeof(int) * kRows;

// hide_unseen() where rows are keys and columns queries, from `first_query` on: the query that is
// the first to see row 16 m + 8 half of this lane is first_to_see[16 m + 8 half].
template <int M, int N>
__device__ __forceinline__ void hide_unseeing(float (&s)[M][N][4], const int* first_to_see,
                                              int first_query) {
  const int first = first_query + static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int hidden = first_to_see[16 * m + 8 * half] - first;
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e)
          if (8 * n + e % 2 < hidden) s[m][n][e] = -INFINITY;
    }
}

// q, kv, dkv and dout as z says; log_sum_exp, delta (B, H, T); D <= columns. `scale` is that of the
// scores, `factor` scale * log2(e).
template <class T, int columns>
__global__ void __launch_bounds__(kKeyThreads<columns>, columns <= 64 ? 2 : 1)
    gradients_of_keys(void* dkv, const Bits* dout, const Bits* q, const Bits* kv,
                      const float* log_sum_exp, const float* delta, AttentionSizes z, SeenKeys mask,
                      GradientStore how, float scale, float factor) {
  constexpr int kM = kKeyFragments<columns>, kN = kQueryStep / 8, kThreads = kKeyThreads<columns>;
  constexpr int kTile = kQueries * kTileRow<columns>, kStage = 2 * kTile;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int tiles = (z.K + kRows - 1) / kRows;
  const int first = static_cast<int>(blockIdx.x % tiles) * kRows;  // the first key has most queries
  const Head head(static_cast<int>(blockIdx.x) / tiles, z);
  const Bits* queries = q + head.q;
  const int first_of_warp = first + 16 * kM * warp;

  Bits* key_tile = gpu::dynamic_shared<Bits>();
  Bits* value_tile = key_tile + kRows * kTileRow<columns>;
  Bits* stages = value_tile + kRows * kTileRow<columns>;  // queries, then dO, twice
  float* rows = reinterpret_cast<float*>(stages + 2 * kStage);
  int* first_queries = reinterpret_cast<int*>(rows + 4 * kQueries);  // that see a key
  const auto load_stage = [&](int query) {
    Bits* to = stages + query / kQueries % 2 * kStage;
    load_tile<kQueries, columns, kThreads>(to, queries + query * z.q.token, z.q.token, z.T - query,
                                           z.D);
    load_tile<kQueries, columns, kThreads>(to + kTile, dout + head.out + query * z.out.token,
                                           z.out.token, z.T - query, z.D);
    gpu::copy_async_commit();
  };
  // What thread i < 2 kQueries brings of a tile's rows: log2 of their sums, or their delta.
  const auto load_row = [&](int query) {
    const int row = query + static_cast<int>(threadIdx.x) % kQueries;
    if (threadIdx.x < kQueries) return log2_sum_of(log_sum_exp + head.statistics, row, z.T);
    return row < z.T && threadIdx.x < 2 * kQueries ? delta[head.statistics + row] : 0.0f;
  };
  const auto store_row = [&](int query, float value) {
    if (threadIdx.x < 2 * kQueries) rows[query / kQueries % 2 * 2 * kQueries + threadIdx.x] = value;
  };
  const Bits* keys = kv + head.kv + first * z.kv.token;
  load_tile<kRows, columns, kThreads>(key_tile, keys, z.kv.token, z.K - first, z.D);
  load_tile<kRows, columns, kThreads>(value_tile, keys + z.value, z.kv.token, z.K - first, z.D);
  // Where nobody sees a key the last tile: the copies under way have to be waited for.
  const int begin = smaller(mask.first_to_see(head.sample, first), z.T - 1) / kQueries * kQueries;
  load_stage(begin);
  store_row(begin, load_row(begin));

  float dk[kM][columns / 8][4] = {}, dv[kM][columns / 8][4] = {};
  Bits* warp_keys = key_tile + 16 * kM * warp * kTileRow<columns>;
  Bits* warp_values = value_tile + 16 * kM * warp * kTileRow<columns>;
  if (threadIdx.x < kRows)
    first_queries[threadIdx.x] =
        mask.first_to_see(head.sample, first + static_cast<int>(threadIdx.x));
  // The first query that sees a key of this warp, and the first that sees all.
  const int begin_of_warp = mask.first_to_see(head.sample, first_of_warp);
  const int all_seen = mask.first_to_see(head.sample, smaller(first_of_warp + 16 * kM, z.K) - 1);

  for (int query = begin; query < z.T; query += kQueries) {
    gpu::copy_async_wait<0>();
    __syncthreads();  // this tile is there for all, and nobody still reads the other half
    const bool more = query + kQueries < z.T;
    float next_row = 0;
    if (more) {
      load_stage(query + kQueries);
      next_row = load_row(query + kQueries);  // on its way while this tile is used
    }
    const Bits* stage = stages + query / kQueries % 2 * kStage;
    const float* row = rows + query / kQueries % 2 * 2 * kQueries;
#pragma unroll 1
    for (int step = 0; step < kQueries; step += kQueryStep) {
      if (query + step + kQueryStep <= begin_of_warp) continue;
      const Bits* step_queries = stage + step * kTileRow<columns>;
      const Bits* step_dout = step_queries + kTile;
      float p[kM][kN][4], ds[kM][kN][4];  // (16 M keys, 32 queries)
      products_of_rows<T, columns>(p, warp_keys + left_lane<columns>(),
                                   step_queries + right_lane<columns>());
      products_of_rows<T, columns>(ds, warp_values + left_lane<columns>(),
                                   step_dout + right_lane<columns>());
      if (query + step < all_seen)
        hide_unseeing(p, first_queries + (first_of_warp - first) + lane / 4, query + step);
      const float* statistics = row + step + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float log2_sum = statistics[8 * n + e % 2];
          const float shift = statistics[kQueries + 8 * n + e % 2];
#pragma unroll
          for (int m = 0; m < kM; ++m) {
            p[m][n][e] = gpu::fast_exp2(fmaf(p[m][n][e], factor, -log2_sum));
            ds[m][n][e] = p[m][n][e] * (ds[m][n][e] - shift);
          }
        }
      add_product<T, columns>(dv, p, step_dout + left_lane<columns>());
      add_product<T, columns>(dk, ds, step_queries + left_lane<columns>());
    }
    if (more) store_row(query + kQueries, next_row);
  }

  const std::int64_t to = head.kv + first_of_warp * z.kv.token;
  const int count = z.K - first_of_warp;
  store_gradients<T, columns>(dkv, to, z.kv.token, count, z.D, how, warp_keys, dk, scale);
  store_gradients<T, columns>(dkv, to + z.value, z.kv.token, count, z.D, how, warp_values, dv,
                              1.0f);
}

// ---- dQ -----------------------------------------------------------------------------------------

constexpr int kQueryFragments = 2, kQueryThreads = kRows / kQueryFragments * 2;
template <int columns>
constexpr int kKeys = columns <= 64 ? 64 : 32;  // of the tiles walked over
template <int columns>
constexpr int kKeyStep = columns <= 96 ? 32 : 16;  // of which a warp takes so many at a time
template <int columns>
constexpr std::size_t kQueryBytes = sizeof(Bits) * kTileRow<columns>*(2 * kRows +
                                                                      4 * kKeys<columns>);

template <class T, int columns>
__global__ void __launch_bounds__(kQueryThreads, 2)
    gradients_of_queries(void* dq, const Bits* dout, const Bits* q, const Bits* kv,
                         const float* log_sum_exp, const float* delta, AttentionSizes z,
                         SeenKeys mask, GradientStore how, float scale, float factor) {
  constexpr int kM = kQueryFragments, kN = kKeyStep<columns> / 8, kThreads = kQueryThreads;
  constexpr int kTile = kKeys<columns> * kTileRow<columns>, kStage = 2 * kTile;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int tiles = (z.T + kRows - 1) / kRows;
  const int first = (tiles - 1 - static_cast<int>(blockIdx.x % tiles)) * kRows;  // longest first
  const Head head(static_cast<int>(blockIdx.x) / tiles, z);
  const Bits* keys = kv + head.kv;
  const int first_of_warp = first + 16 * kM * warp;

  Bits* query_tile = gpu::dynamic_shared<Bits>();
  Bits* dout_tile = query_tile + kRows * kTileRow<columns>;
  Bits* stages = dout_tile + kRows * kTileRow<columns>;  // keys, then values, twice
  const auto load_stage = [&](int key) {
    Bits* to = stages + key / kKeys<columns> % 2 * kStage;
    const Bits* from = keys + key * z.kv.token;
    load_tile<kKeys<columns>, columns, kThreads>(to, from, z.kv.token, z.K - key, z.D);
    load_tile<kKeys<columns>, columns, kThreads>(to + kTile, from + z.value, z.kv.token, z.K - key,
                                                 z.D);
    gpu::copy_async_commit();
  };
  load_tile<kRows, columns, kThreads>(query_tile, q + head.q + first * z.q.token, z.q.token,
                                      z.T - first, z.D);
  load_tile<kRows, columns, kThreads>(dout_tile, dout + head.out + first * z.out.token, z.out.token,
                                      z.T - first, z.D);
  load_stage(0);

  float log2_sum[kM][2], row_delta[kM][2];
  int seen[kM][2];  // keys, by the queries of this lane
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = first_of_warp + 16 * m + 8 * half + lane / 4;
      log2_sum[m][half] = log2_sum_of(log_sum_exp + head.statistics, query, z.T);
      row_delta[m][half] = query < z.T ? delta[head.statistics + query] : 0.0f;
      seen[m][half] = mask.seen(head.sample, query);
    }
  const int all_see = __shfl_sync(kAllLanes, seen[0][0], 0);  // all queries of this warp
  const int one_sees = __shfl_sync(kAllLanes, seen[kM - 1][1], 31);
  float sums[kM][columns / 8][4] = {};
  Bits* warp_queries = query_tile + 16 * kM * warp * kTileRow<columns>;
  const Bits* warp_dout = dout_tile + 16 * kM * warp * kTileRow<columns>;

  // Once where nobody sees a key: the copies that are under way have to be waited for.
  const int end = mask.seen(head.sample, smaller(first + kRows, z.T) - 1);
  for (int key = 0; key == 0 || key < end; key += kKeys<columns>) {
    gpu::copy_async_wait<0>();
    __syncthreads();  // this tile is there for all, and nobody still reads the other half
    if (key + kKeys<columns> < end) load_stage(key + kKeys<columns>);
    const Bits* stage = stages + key / kKeys<columns> % 2 * kStage;
#pragma unroll 1
    for (int step = 0; step < kKeys<columns>; step += kKeyStep<columns>) {
      if (key + step >= one_sees) break;
      const Bits* step_keys = stage + step * kTileRow<columns>;
      float p[kM][kN][4], ds[kM][kN][4];  // (32 queries, 32 keys)
      products_of_rows<T, columns>(p, warp_queries + left_lane<columns>(),
                                   step_keys + right_lane<columns>());
      products_of_rows<T, columns>(ds, warp_dout + left_lane<columns>(),
                                   step_keys + kTile + right_lane<columns>());
      if (all_see < key + step + kKeyStep<columns>) hide_unseen(p, seen, key + step);
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int n = 0; n < kN; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float probability = gpu::fast_exp2(fmaf(p[m][n][e], factor, -log2_sum[m][e / 2]));
            ds[m][n][e] = probability * (ds[m][n][e] - row_delta[m][e / 2]);
          }
      add_product<T, columns>(sums, ds, step_keys + left_lane<columns>());
    }
  }
  store_gradients<T, columns>(dq, head.q + first_of_warp * z.q.token, z.q.token,
                              z.T - first_of_warp, z.D, how, warp_queries, sums, scale);
}

// ---- both ---------------------------------------------------------------------------------------

// What a call has besides the two gradients.
struct Operands {
  ConstView dout, q, kv, log_sum_exp, delta;
  AttentionSizes z;
  SeenKeys mask;
  GradientStore how;
};

template <class T, int columns>
void run(View dq, View dkv, const Operands& x) {
  const auto scale = static_cast<float>(x.z.scale);
  const auto launch = [&](auto kernel, View to, int tokens, int threads, std::size_t bytes) {
    launch_kernel("attention_backward", as_cuda(to.device()).stream(),
                  attention_blocks(x.z, tokens, kRows), threads, bytes, kernel, to.raw(),
                  x.dout.raw(), x.q.raw(), x.kv.raw(), x.log_sum_exp.raw(), x.delta.raw(), x.z,
                  x.mask, x.how, scale, scale * kLog2E);
  };
  launch(gradients_of_keys<T, columns>, dkv, x.z.K, kKeyThreads<columns>, kKeyBytes<columns>);
  launch(gradients_of_queries<T, columns>, dq, x.z.T, kQueryThreads, kQueryBytes<columns>);
}

// What heads of D columns need of a block's shared memory.
std::size_t shared_bytes(std::int64_t D) {
  if (D <= 32) return std::max(kKeyBytes<32>, kQueryBytes<32>);
  if (D <= 64) return std::max(kKeyBytes<64>, kQueryBytes<64>);
  if (D <= 96) return std::max(kKeyBytes<96>, kQueryBytes<96>);
  return std::max(kKeyBytes<128>, kQueryBytes<128>);
}

template <class T>
void run(View dq, View dkv, const Operands& x) {
  if (x.z.D <= 32) return run<T, 32>(dq, dkv, x);
  if (x.z.D <= 64) return run<T, 64>(dq, dkv, x);
  if (x.z.D <= 96) return run<T, 96>(dq, dkv, x);
  run<T, 128>(dq, dkv, x);
}

void backward(View dq, View dkv, ConstView dout, ConstView q, ConstView kv, ConstView out,
              ConstView log_sum_exp, const AttentionSizes& z, const ops::AttentionMask& mask,
              Into into) {
  const Tensor delta(log_sum_exp.shape(), log_sum_exp.dtype(), dq.device(), Purpose::Workspace);
  attention_delta(delta, dout, out, z);
  const Operands x{dout,
                   q,
                   kv,
                   log_sum_exp,
                   delta,
                   z,
                   SeenKeys(mask, z.K),
                   {.in_f32 = dq.dtype() == DType::F32, .accumulate = into == Into::Accumulate}};
  if (!suits_tensor_cores(z, q.dtype(), {dq, dkv, dout, q, kv}) ||
      shared_bytes(z.D) > as_cuda(dq.device()).most_shared_bytes())
    plain_attention_backward(dq, dkv, dout, q, kv, log_sum_exp, delta, z, x.mask, into);
  else if (q.dtype() == DType::BF16)
    run<BFloat16>(dq, dkv, x);
  else
    run<Float16>(dq, dkv, x);
}

}  // namespace

void attention_backward(View dq, View dkv, ConstView dout, ConstView q, ConstView kv, ConstView out,
                        ConstView log_sum_exp, std::int64_t heads, const ops::AttentionMask& mask,
                        Into into) {
  if (dq.count() == 0) {  // no queries
    if (into == Into::Overwrite) dkv.device().zero(dkv);
    return;
  }
  backward(dq, dkv, dout, q, kv, out, log_sum_exp, AttentionSizes(q, kv, heads), mask, into);
}

void causal_attention_backward(View dqkv, ConstView dout, ConstView qkv, ConstView out,
                               ConstView log_sum_exp, std::int64_t heads) {
  if (dqkv.count() == 0) return;
  const AttentionSizes z(qkv, heads);
  const std::int64_t rest = qkv.count() - z.D;  // from the first key on
  backward(dqkv, dqkv.flat(z.D, rest), dout, qkv, qkv.flat(z.D, rest), out, log_sum_exp, z, {},
           Into::Overwrite);
}

}  // namespace aisc::cuda
