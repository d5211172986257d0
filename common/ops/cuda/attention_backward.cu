// The backward pass of causal attention on tensor cores. With P the probabilities of a query and O
// its output ("FlashAttention", algorithm 4):
//   dV = P^T dO,  dP = dO V^T,  dS = P (dP - delta),  dQ = dS K,  dK = dS^T Q,
// where delta = sum over columns of dO * O, and P = exp(score - log_sum_exp) is computed again.
//
// Two kernels, each of which keeps its sums in registers and writes every gradient once, so that
// nothing is added by atomics and every run has the same bits: one takes a tile of keys and walks
// over the queries from the diagonal on, for dK and dV; the other takes a tile of queries and walks
// over the keys up to the diagonal, for dQ. Scores and dP are so computed twice: 7 products in
// place of 5, against sums of dQ in F32 that go through memory once for each tile of keys.
//
// Both compute with the side that they keep as the left factor: the first has scores of keys (rows)
// and queries (columns), the second of queries and keys. P and dS are then left factors in
// registers for the products that follow.
//
// Operations: 7 T^2 D / 2 multiply-adds and T^2 exponentials a head. Bytes: 26 T D a head, and what
// is walked over again for each tile of 128, from the L2 cache. With T in the hundreds and more the
// tensor cores are the limit, or the reads of shared memory that feed them. Share of their peak:
// not measured yet.
#include <algorithm>

#include "common/core/cuda/cuda_device.h"
#include "common/core/cuda/launch.h"
#include "common/ops/cuda/attention.h"
#include "common/ops/cuda/attention_tile.h"
#include "common/ops/cuda/kernels.h"

namespace aisc::cuda {
namespace {

constexpr int kRows = 128;  // of the tile that a block keeps
constexpr float kLog2E = 1.4426950408889634f;

// A head of a sample, and where its rows are in tensors of T tokens.
struct Head {
  __device__ __forceinline__ Head(int index, const AttentionSizes& z) {
    const std::int64_t b = index / z.H, h = index % z.H;
    qkv = b * z.T * z.qkv_row + h * 3 * z.D;
    out = b * z.T * z.out_row + h * z.D;
    statistics = std::int64_t{index} * z.T;
  }
  std::int64_t qkv, out, statistics;
};

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
                                  sizeof(float) * 4 * kQueries;

// dqkv, qkv (B, T, H 3 D); dout (B, T, H D); log_sum_exp, delta (B, H, T); D <= columns. `scale` is
// that of the scores, `factor` scale * log2(e).
template <class T, int columns>
__global__ void __launch_bounds__(kKeyThreads<columns>, columns <= 64 ? 2 : 1)
    gradients_of_keys(Bits* dqkv, const Bits* dout, const Bits* qkv, const float* log_sum_exp,
                      const float* delta, AttentionSizes z, float scale, float factor) {
  constexpr int kM = kKeyFragments<columns>, kN = kQueryStep / 8, kThreads = kKeyThreads<columns>;
  constexpr int kTile = kQueries * kTileRow<columns>, kStage = 2 * kTile;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int tiles = (z.T + kRows - 1) / kRows;
  const int first = static_cast<int>(blockIdx.x % tiles) * kRows;  // the first key has most queries
  const Head head(static_cast<int>(blockIdx.x) / tiles, z);
  const Bits* queries = qkv + head.qkv;
  const int first_of_warp = first + 16 * kM * warp;

  Bits* key_tile = gpu::dynamic_shared<Bits>();
  Bits* value_tile = key_tile + kRows * kTileRow<columns>;
  Bits* stages = value_tile + kRows * kTileRow<columns>;  // queries, then dO, twice
  float* rows = reinterpret_cast<float*>(stages + 2 * kStage);
  const auto load_stage = [&](int query) {
    Bits* to = stages + query / kQueries % 2 * kStage;
    load_tile<kQueries, columns, kThreads>(to, queries + query * z.qkv_row, z.qkv_row, z.T - query,
                                           z.D);
    load_tile<kQueries, columns, kThreads>(to + kTile, dout + head.out + query * z.out_row,
                                           z.out_row, z.T - query, z.D);
    gpu::copy_async_commit();
  };
  // What thread i < 2 kQueries brings of a tile's rows: log2 of their sums of exponentials, of
  // which queries that are not there have infinity, or their delta.
  const auto load_row = [&](int query) {
    const int row = query + static_cast<int>(threadIdx.x) % kQueries;
    if (threadIdx.x < kQueries)
      return row < z.T ? log_sum_exp[head.statistics + row] * kLog2E : INFINITY;
    return row < z.T && threadIdx.x < 2 * kQueries ? delta[head.statistics + row] : 0.0f;
  };
  const auto store_row = [&](int query, float value) {
    if (threadIdx.x < 2 * kQueries) rows[query / kQueries % 2 * 2 * kQueries + threadIdx.x] = value;
  };
  load_tile<kRows, columns, kThreads>(key_tile, queries + first * z.qkv_row + z.D, z.qkv_row,
                                      z.T - first, z.D);
  load_tile<kRows, columns, kThreads>(value_tile, queries + first * z.qkv_row + 2 * z.D, z.qkv_row,
                                      z.T - first, z.D);
  load_stage(first);
  store_row(first, load_row(first));

  float dk[kM][columns / 8][4] = {}, dv[kM][columns / 8][4] = {};
  Bits* warp_keys = key_tile + 16 * kM * warp * kTileRow<columns>;
  Bits* warp_values = value_tile + 16 * kM * warp * kTileRow<columns>;

  for (int query = first; query < z.T; query += kQueries) {
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
      if (query + step + kQueryStep <= first_of_warp) continue;  // before all keys of this warp
      const Bits* step_queries = stage + step * kTileRow<columns>;
      const Bits* step_dout = step_queries + kTile;
      float p[kM][kN][4], ds[kM][kN][4];  // (16 M keys, 32 queries)
      products_of_rows<T, columns>(p, warp_keys + left_lane<columns>(),
                                   step_queries + right_lane<columns>());
      products_of_rows<T, columns>(ds, warp_values + left_lane<columns>(),
                                   step_dout + right_lane<columns>());
      // How far this lane's first key lies behind its first query, and that query's statistics.
      const int lead = first_of_warp + lane / 4 - (query + step + lane % 4 * 2);
      const float* statistics = row + step + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < kN; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float log2_sum = statistics[8 * n + e % 2];
          const float shift = statistics[kQueries + 8 * n + e % 2];
#pragma unroll
          for (int m = 0; m < kM; ++m) {
            const bool seen = lead <= 8 * n + e % 2 - (16 * m + 8 * (e / 2));
            p[m][n][e] = seen ? gpu::fast_exp2(fmaf(p[m][n][e], factor, -log2_sum)) : 0.0f;
            ds[m][n][e] = p[m][n][e] * (ds[m][n][e] - shift);
          }
        }
      add_product<T, columns>(dv, p, step_dout + left_lane<columns>());
      add_product<T, columns>(dk, ds, step_queries + left_lane<columns>());
    }
    if (more) store_row(query + kQueries, next_row);
  }

  float scales[kM][2], ones[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) scales[m][half] = scale, ones[m][half] = 1.0f;
  Bits* to = dqkv + (queries - qkv) + first_of_warp * z.qkv_row + z.D;
  store_rows<T, columns>(to, z.qkv_row, z.T - first_of_warp, z.D, warp_keys, dk, scales);
  store_rows<T, columns>(to + z.D, z.qkv_row, z.T - first_of_warp, z.D, warp_values, dv, ones);
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
    gradients_of_queries(Bits* dqkv, const Bits* dout, const Bits* qkv, const float* log_sum_exp,
                         const float* delta, AttentionSizes z, float scale, float factor) {
  constexpr int kM = kQueryFragments, kN = kKeyStep<columns> / 8, kThreads = kQueryThreads;
  constexpr int kTile = kKeys<columns> * kTileRow<columns>, kStage = 2 * kTile;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int tiles = (z.T + kRows - 1) / kRows;
  const int first = (tiles - 1 - static_cast<int>(blockIdx.x % tiles)) * kRows;  // longest first
  const Head head(static_cast<int>(blockIdx.x) / tiles, z);
  const Bits* keys = qkv + head.qkv + z.D;
  const int first_of_warp = first + 16 * kM * warp;

  Bits* query_tile = gpu::dynamic_shared<Bits>();
  Bits* dout_tile = query_tile + kRows * kTileRow<columns>;
  Bits* stages = dout_tile + kRows * kTileRow<columns>;  // keys, then values, twice
  const auto load_stage = [&](int key) {
    Bits* to = stages + key / kKeys<columns> % 2 * kStage;
    const Bits* from = keys + key * z.qkv_row;
    load_tile<kKeys<columns>, columns, kThreads>(to, from, z.qkv_row, z.T - key, z.D);
    load_tile<kKeys<columns>, columns, kThreads>(to + kTile, from + z.D, z.qkv_row, z.T - key, z.D);
    gpu::copy_async_commit();
  };
  load_tile<kRows, columns, kThreads>(query_tile, keys - z.D + first * z.qkv_row, z.qkv_row,
                                      z.T - first, z.D);
  load_tile<kRows, columns, kThreads>(dout_tile, dout + head.out + first * z.out_row, z.out_row,
                                      z.T - first, z.D);
  load_stage(0);

  float log2_sum[kM][2], row_delta[kM][2], scales[kM][2];
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = first_of_warp + 16 * m + 8 * half + lane / 4;
      const bool valid = query < z.T;
      log2_sum[m][half] = valid ? log_sum_exp[head.statistics + query] * kLog2E : INFINITY;
      row_delta[m][half] = valid ? delta[head.statistics + query] : 0.0f;
      scales[m][half] = scale;
    }
  float dq[kM][columns / 8][4] = {};
  Bits* warp_queries = query_tile + 16 * kM * warp * kTileRow<columns>;
  const Bits* warp_dout = dout_tile + 16 * kM * warp * kTileRow<columns>;

  const int end = z.T < first + kRows ? z.T : first + kRows;
  for (int key = 0; key < end; key += kKeys<columns>) {
    gpu::copy_async_wait<0>();
    __syncthreads();  // this tile is there for all, and nobody still reads the other half
    if (key + kKeys<columns> < end) load_stage(key + kKeys<columns>);
    const Bits* stage = stages + key / kKeys<columns> % 2 * kStage;
#pragma unroll 1
    for (int step = 0; step < kKeys<columns>; step += kKeyStep<columns>) {
      if (key + step >= first_of_warp + 16 * kM) break;  // after all queries of this warp
      const Bits* step_keys = stage + step * kTileRow<columns>;
      float p[kM][kN][4], ds[kM][kN][4];  // (32 queries, 32 keys)
      products_of_rows<T, columns>(p, warp_queries + left_lane<columns>(),
                                   step_keys + right_lane<columns>());
      products_of_rows<T, columns>(ds, warp_dout + left_lane<columns>(),
                                   step_keys + kTile + right_lane<columns>());
#pragma unroll
      for (int m = 0; m < kM; ++m)
#pragma unroll
        for (int n = 0; n < kN; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const int query = first_of_warp + 16 * m + 8 * (e / 2) + lane / 4;
            const int column = key + step + 8 * n + 2 * (lane % 4) + e % 2;
            const float probability = gpu::fast_exp2(fmaf(p[m][n][e], factor, -log2_sum[m][e / 2]));
            ds[m][n][e] =
                column <= query ? probability * (ds[m][n][e] - row_delta[m][e / 2]) : 0.0f;
          }
      add_product<T, columns>(dq, ds, step_keys + left_lane<columns>());
    }
  }
  store_rows<T, columns>(dqkv + head.qkv + first_of_warp * z.qkv_row, z.qkv_row,
                         z.T - first_of_warp, z.D, warp_queries, dq, scales);
}

// ---- both ---------------------------------------------------------------------------------------

template <class T, int columns>
void run(View dqkv, ConstView dout, ConstView qkv, ConstView log_sum_exp, ConstView delta,
         const AttentionSizes& z) {
  const cudaStream_t stream = as_cuda(dqkv.device()).stream();
  const unsigned blocks = attention_blocks(z, kRows);
  const auto scale = static_cast<float>(z.scale), factor = static_cast<float>(z.scale) * kLog2E;
  const auto launch = [&](auto kernel, int threads, std::size_t bytes) {
    launch_kernel("causal_attention_backward", stream, blocks, threads, bytes, kernel,
                  static_cast<Bits*>(dqkv.raw()), static_cast<const Bits*>(dout.raw()),
                  static_cast<const Bits*>(qkv.raw()), static_cast<const float*>(log_sum_exp.raw()),
                  static_cast<const float*>(delta.raw()), z, scale, factor);
  };
  launch(gradients_of_keys<T, columns>, kKeyThreads<columns>, kKeyBytes<columns>);
  launch(gradients_of_queries<T, columns>, kQueryThreads, kQueryBytes<columns>);
}

// What heads of D columns need of a block's shared memory.
std::size_t shared_bytes(std::int64_t D) {
  if (D <= 32) return std::max(kKeyBytes<32>, kQueryBytes<32>);
  if (D <= 64) return std::max(kKeyBytes<64>, kQueryBytes<64>);
  if (D <= 96) return std::max(kKeyBytes<96>, kQueryBytes<96>);
  return std::max(kKeyBytes<128>, kQueryBytes<128>);
}

template <class T>
void run(View dqkv, ConstView dout, ConstView qkv, ConstView log_sum_exp, ConstView delta,
         const AttentionSizes& z) {
  if (z.D <= 32) return run<T, 32>(dqkv, dout, qkv, log_sum_exp, delta, z);
  if (z.D <= 64) return run<T, 64>(dqkv, dout, qkv, log_sum_exp, delta, z);
  if (z.D <= 96) return run<T, 96>(dqkv, dout, qkv, log_sum_exp, delta, z);
  run<T, 128>(dqkv, dout, qkv, log_sum_exp, delta, z);
}

}  // namespace

void causal_attention_backward(View dqkv, ConstView dout, ConstView qkv, ConstView out,
                               ConstView log_sum_exp, std::int64_t heads) {
  if (dqkv.count() == 0) return;
  const AttentionSizes z(qkv, heads);
  const Tensor delta(log_sum_exp.shape(), log_sum_exp.dtype(), dqkv.device(), Purpose::Workspace);
  attention_delta(delta, dout, out, z);
  if (!suits_tensor_cores(z, {dqkv, dout, qkv}) ||
      shared_bytes(z.D) > as_cuda(dqkv.device()).most_shared_bytes())
    plain_attention_backward(dqkv, dout, qkv, log_sum_exp, delta, z);
  else if (qkv.dtype() == DType::BF16)
    run<BFloat16>(dqkv, dout, qkv, log_sum_exp, delta, z);
  else
    run<Float16>(dqkv, dout, qkv, log_sum_exp, delta, z);
}

}  // namespace aisc::cuda
