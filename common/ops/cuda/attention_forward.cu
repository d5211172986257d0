// Attention on tensor cores, in the manner of FlashAttention-2 (Dao, 2023). A block takes 128
// queries of one head, each of its four warps 32 of them, and walks over tiles of 64 keys and
// values up to the last key that one of them sees. Scores, their exponentials and the output so far
// stay in registers; with the online softmax (Milakov and Gimelshein, 2018) a row keeps its
// maximum, and what was summed before is scaled down when a later tile raises it. While a tile is
// used the next one is copied to the other half of a double buffer: one barrier a tile.
//
// Exponentials are of base 2, the scale of the scores times log2(e) in one factor. They are rounded
// to the type of the values for the second product; their sum is not.
//
// Operations: 2 D multiply-adds and an exponential for each query and key it sees; causal
// attention of T tokens masks half of all pairs, so T^2 D and T^2 / 2 a head. Bytes: 4 (T + K) D a
// head, and keys and values again for each 128 queries, from the L2 cache. With T in the hundreds
// and more the tensor cores are the limit. On an H200 (./aisc bench gpu; BF16, T = 1024, D = 64)
// 230 TFLOP/s of what is not masked, .29 of a large product's; docs/results/gpu_h200.md says why.
#include <cfloat>

#include "common/core/cuda/cuda_device.h"
#include "common/core/cuda/launch.h"
#include "common/ops/cuda/attention.h"
#include "common/ops/cuda/attention_tile.h"
#include "common/ops/cuda/kernels.h"
#include "common/ops/cuda/reduce.h"

namespace aisc::cuda {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kM = 2;  // fragments of 16 rows that a warp has: each key is read once for 32 queries
constexpr int kQueries = 16 * kM * kWarps;
constexpr float kLog2E = 1.4426950408889634f;

// Keys of a tile: the wider a head, the fewer registers its output leaves for scores.
template <int columns>
constexpr int kKeysOf = columns <= 64 ? 64 : 32;
template <int columns>
constexpr std::size_t kSharedBytes = sizeof(Bits) * kTileRow<columns>*(kQueries +
                                                                       4 * kKeysOf<columns>);

// One row's maximum over this tile and all before it; its scores become exponentials, and what was
// summed before (`total` and `o`) is scaled to the new maximum. That begins with the lowest number:
// minus infinity less itself, of a row that sees nothing yet, would not be one. A row is held by
// four lanes.
template <int N, int O>
__device__ __forceinline__ void online_softmax(float (&s)[N][4], float (&o)[O][4], int half,
                                               float& maximum, float& total, float factor) {
  float highest = maximum;
#pragma unroll
  for (int n = 0; n < N; ++n) highest = fmaxf(highest, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
  highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, 1));
  highest = fmaxf(highest, __shfl_xor_sync(kAllLanes, highest, 2));
  const float shrink = gpu::fast_exp2((maximum - highest) * factor);  // 0 in the first tile
  const float offset = highest * factor;
  maximum = highest;
  total *= shrink;
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int e = 2 * half; e < 2 * half + 2; ++e) {
      s[n][e] = gpu::fast_exp2(fmaf(s[n][e], factor, -offset));
      total += s[n][e];  // of this lane's columns; the four lanes are added in the end
    }
#pragma unroll
  for (int n = 0; n < O; ++n) {
    o[n][2 * half] *= shrink;
    o[n][2 * half + 1] *= shrink;
  }
}

// out (B, T, H D), log_sum_exp (B, H, T); q and kv as z says; D <= columns.
template <class T, int columns>
__global__ void __launch_bounds__(kThreads, 2)
    tile_attention(Bits* out, float* log_sum_exp, const Bits* q, const Bits* kv, AttentionSizes z,
                   SeenKeys mask, float scale, float factor) {
  // Where registers are few, queries are read from shared memory again for each tile.
  constexpr bool kKeepQueries = columns <= 64;
  constexpr int kKeys = kKeysOf<columns>;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int tiles = (z.T + kQueries - 1) / kQueries;
  const int first = (tiles - 1 - static_cast<int>(blockIdx.x % tiles)) * kQueries;  // longest first
  const std::int64_t head = blockIdx.x / tiles, b = head / z.H, h = head % z.H;
  const Bits *keys = kv + z.kv.at(b, h), *values = keys + z.value;
  const int first_of_warp = first + 16 * kM * warp;

  constexpr int kStage = 2 * kKeys * kTileRow<columns>;
  Bits* query_tile = gpu::dynamic_shared<Bits>();
  Bits* stages = query_tile + kQueries * kTileRow<columns>;
  const auto load_stage = [&](int step) {
    Bits* to = stages + step % 2 * kStage;
    const int key = step * kKeys;
    load_tile<kKeys, columns, kThreads>(to, keys + key * z.kv.token, z.kv.token, z.K - key, z.D);
    load_tile<kKeys, columns, kThreads>(to + kStage / 2, values + key * z.kv.token, z.kv.token,
                                        z.K - key, z.D);
    gpu::copy_async_commit();
  };
  load_tile<kQueries, columns, kThreads>(query_tile, q + z.q.at(b, h) + first * z.q.token,
                                         z.q.token, z.T - first, z.D);
  load_stage(0);

  float o[kM][columns / 8][4] = {};  // (32, D), not yet divided by `total`
  float maximum[kM][2], total[kM][2] = {};
  int seen[kM][2];  // keys, by the queries of this lane
#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      maximum[m][half] = -FLT_MAX;
      seen[m][half] = mask.seen(b, first_of_warp + 16 * m + 8 * half + lane / 4);
    }
  const int all_see = __shfl_sync(kAllLanes, seen[0][0], 0);  // all queries of this warp
  const int one_sees = __shfl_sync(kAllLanes, seen[kM - 1][1], 31);
  Bits* warp_tile = query_tile + 16 * kM * warp * kTileRow<columns>;
  const Bits* left = warp_tile + left_lane<columns>();
  std::uint32_t kept[kKeepQueries ? columns / 16 : 1][kM][4];

  // Once where nobody sees a key: the copies that are under way have to be waited for.
  const int end = mask.seen(b, smaller(first + kQueries, z.T) - 1);
  for (int step = 0; step == 0 || step * kKeys < end; ++step) {
    const int key = step * kKeys;
    gpu::copy_async_wait<0>();
    __syncthreads();  // this tile is there for all, and nobody still reads the other half
    if (key + kKeys < end) load_stage(step + 1);
    if constexpr (kKeepQueries)
      if (step == 0)
#pragma unroll
        for (int k = 0; k < columns / 16; ++k) load_left<columns>(kept[k], left, k);
    if (key >= one_sees) continue;

    const Bits* key_tile = stages + step % 2 * kStage;
    const Bits* right = key_tile + right_lane<columns>();
    float s[kM][kKeys / 8][4] = {};  // (32, 64): scores, then their exponentials
#pragma unroll
    for (int k = 0; k < columns / 16; ++k) {
      if constexpr (kKeepQueries) {
        multiply_rows<T, columns>(s, kept[k], right, k);
      } else {
        std::uint32_t a[kM][4];
        load_left<columns>(a, left, k);
        multiply_rows<T, columns>(s, a, right, k);
      }
    }
    if (key + kKeys > all_see) hide_unseen(s, seen, key);
#pragma unroll
    for (int m = 0; m < kM; ++m)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        online_softmax(s[m], o[m], half, maximum[m][half], total[m][half], factor);
    add_product<T, columns>(o, s, key_tile + kStage / 2 + left_lane<columns>());
  }

#pragma unroll
  for (int m = 0; m < kM; ++m)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float& sum = total[m][half];
      sum += __shfl_xor_sync(kAllLanes, sum, 1);
      sum += __shfl_xor_sync(kAllLanes, sum, 2);
      const int query = first_of_warp + 16 * m + 8 * half + lane / 4;
      if (lane % 4 == 0 && query < z.T)
        log_sum_exp[head * z.T + query] = maximum[m][half] * scale + logf(sum);
      sum = sum == 0 ? 0.0f : 1.0f / sum;  // 0: a query that sees no key
    }
  store_rows<T, columns>(out + z.out.at(b, h) + first_of_warp * z.out.token, z.out.token,
                         z.T - first_of_warp, z.D, warp_tile, o, total);
}

template <class T, int columns>
void run(View out, View log_sum_exp, ConstView q, ConstView kv, const AttentionSizes& z,
         const SeenKeys& mask) {
  launch_kernel("attention", as_cuda(out.device()).stream(), attention_blocks(z, z.T, kQueries),
                kThreads, kSharedBytes<columns>, tile_attention<T, columns>, out.raw(),
                log_sum_exp.raw(), q.raw(), kv.raw(), z, mask, z.scale, z.scale * kLog2E);
}

template <class T>
void run(View out, View log_sum_exp, ConstView q, ConstView kv, const AttentionSizes& z,
         const SeenKeys& mask) {
  if (z.D <= 32) return run<T, 32>(out, log_sum_exp, q, kv, z, mask);
  if (z.D <= 64) return run<T, 64>(out, log_sum_exp, q, kv, z, mask);
  if (z.D <= 96) return run<T, 96>(out, log_sum_exp, q, kv, z, mask);
  run<T, 128>(out, log_sum_exp, q, kv, z, mask);
}

void forward(View out, View log_sum_exp, ConstView q, ConstView kv, const AttentionSizes& z,
             const ops::AttentionMask& mask) {
  const SeenKeys seen(mask, z.K);
  if (!suits_tensor_cores(z, q.dtype(), {out, q, kv}))
    plain_attention(out, log_sum_exp, q, kv, z, seen);
  else if (q.dtype() == DType::BF16)
    run<BFloat16>(out, log_sum_exp, q, kv, z, seen);
  else
    run<Float16>(out, log_sum_exp, q, kv, z, seen);
}

}  // namespace

void attention(View out, View log_sum_exp, ConstView q, ConstView kv, std::int64_t heads,
               const ops::AttentionMask& mask) {
  if (out.count() == 0) return;
  forward(out, log_sum_exp, q, kv, AttentionSizes(q, kv, heads), mask);
}

void causal_attention(View out, View log_sum_exp, ConstView qkv, std::int64_t heads) {
  if (out.count() == 0) return;
  const AttentionSizes z(qkv, heads);
  forward(out, log_sum_exp, qkv, qkv.flat(z.D, qkv.count() - z.D), z, {});
}

}  // namespace aisc::cuda
