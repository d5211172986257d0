// Attention, block by block: kBlock queries meet kBlock keys, and a block of scores is used and
// forgotten. With the online softmax (Milakov and Gimelshein, 2018) a row keeps its maximum m, the
// sum of 2^(score - m), and the output so far; when a later block raises m, what was summed before
// is scaled by 2^(old m - new m). Scores are multiples of log2(e), so that exponentials are powers
// of two.
//
// One thread takes one head. It packs keys (transposed) and values as queries come to see them, in
// full precision and padded to whole vectors: memory grows linearly with their number. Rows of
// tokens are far apart in memory; the next block's are fetched while this one's are multiplied.
// Where a query sees a part of a block, six rows at a time leave out what none of them sees.
#include <omp.h>

#include <limits>

#include "common/ops/cpu/attention_tiles.h"
#include "common/ops/cpu/kernels.h"

namespace aisc::cpu {
namespace {

// A block of queries on its way past the keys.
template <class S>
struct ForwardBlock : QueryBlock {
  using QueryBlock::QueryBlock;
  alignas(64) S scores[kBlock * kBlock];       // then their exponentials
  alignas(64) S sums[kBlock * kTileLanes<S>];  // of a row's exponentials, lane by lane
  S maximum[kBlock];
};

// A row of scores becomes 2^(score - m), `depth` numbers of which those of unseen keys are 0, and
// `out` is scaled to the new maximum.
template <class S>
void online_softmax(ForwardBlock<S>& block, std::int64_t row, std::int64_t seen, std::int64_t depth,
                    S* out, std::int64_t Dp) {
  constexpr std::int64_t kLanes = kTileLanes<S>;
  S* scores = block.scores + row * kBlock;
  const std::int64_t width = tile_padded<S>(seen);
  for (std::int64_t j = seen; j < width; ++j) scores[j] = -std::numeric_limits<S>::infinity();
  for (std::int64_t j = width; j < depth; ++j) scores[j] = 0;
  if (seen == 0) return;
  Lanes<S> top = lanes(scores), sum{};
  for (std::int64_t j = kLanes; j < width; j += kLanes) top = larger<S>(lanes(scores + j), top);
  const S before = block.maximum[row], maximum = std::max(before, largest_of<S>(top));
  for (std::int64_t j = 0; j < width; j += kLanes)
    sum += lanes(scores + j) = exp2_of(lanes(scores + j) - maximum);
  auto& sums = lanes(block.sums + row * kLanes);
  if (maximum != before) {
    const Lanes<S> shrink = exp2_of(Lanes<S>{} + (before - maximum));  // 0 in the first block
    sums *= shrink;
    for (std::int64_t d = 0; d < Dp; d += kLanes) lanes(out + row * Dp + d) *= shrink;
    block.maximum[row] = maximum;
  }
  sums += sum;
}

template <class T>
void forward(View out, View log_sum_exp, const QueriesKeysValues<const T>& in,
             const AttentionSizes& z, const ops::AttentionMask& mask) {
  using S = Accumulator<T>;
  const std::int64_t Dp = tile_padded<S>(z.D), heads = z.B * z.H;
  const std::int64_t all = (z.K + kBlock - 1) / kBlock * kBlock * Dp, one = kBlock * Dp;
  const std::int64_t part = 2 * all + 3 * one;
  const Tensor workspace({omp_get_max_threads() * part}, DTypeOf<S>::value, out.device(),
                         Purpose::Workspace);
  const Heads<T> outputs{out.data<T>(), z.T, z.H * z.D, z.D};
  S *lse = log_sum_exp.data<S>(), *shared = workspace.data<S>();
  const S scale = static_cast<S>(kLog2E / std::sqrt(static_cast<double>(z.D)));
#pragma omp parallel for schedule(static)
  for (std::int64_t head = 0; head < heads; ++head) {
    const std::int64_t b = head / z.H, h = head % z.H;
    const HeadRows<const T> queries_in = in.queries(b, h), keys_in = in.keys(b, h),
                            values_in = in.values(b, h);
    const HeadRows<T> to = outputs(b, h);
    S *keys = shared + omp_get_thread_num() * part, *values = keys + all;  // (Dp, 64)s; (K, Dp)
    S *queries = values + all, *result = queries + one, *rows = result + one;
    std::int64_t packed = 0;  // keys and values

    for (std::int64_t i0 = 0; i0 < z.T; i0 += kBlock) {
      ForwardBlock<S> block(mask, z, b, i0);
      const std::int64_t seen = block.seen();
      for (; packed < seen; packed += kBlock) {
        const std::int64_t count = std::min(kBlock, z.K - packed);
        pack(rows, keys_in, packed, count, z.D, S(1));
        transpose_block(keys + packed * Dp, rows, count, Dp);
        pack(values + packed * Dp, values_in, packed, count, z.D, S(1));
      }
      pack(queries, queries_in, i0, block.rows, z.D, scale);
      fetch<For::Writing>(to, i0, i0 + block.rows, z.D);
      fetch<For::Reading>(queries_in, i0 + kBlock, std::min(z.T, i0 + 2 * kBlock), z.D);
      fetch<For::Reading>(keys_in, packed, std::min(z.K, packed + kBlock), z.D);
      fetch<For::Reading>(values_in, packed, std::min(z.K, packed + kBlock), z.D);
      std::fill(block.maximum, block.maximum + kBlock, -std::numeric_limits<S>::infinity());
      std::fill(block.sums, block.sums + kBlock * kTileLanes<S>, S(0));
      std::fill(result, result + one, S(0));

      // Before each turn `result` and `sums` are those of the keys before j0.
      for (std::int64_t j0 = 0; j0 < seen; j0 += kBlock) {
        block.strips(j0, [&](std::int64_t r, std::int64_t count, std::int64_t depth) {
          strip_product<S>(block.scores + r * kBlock, kBlock, {queries + r * Dp, Dp, 1},
                           keys + j0 * Dp, kBlock, count, tile_padded<S>(depth), Dp, TileSums::New);
        });
        block.strips(j0, [&](std::int64_t r, std::int64_t count, std::int64_t depth) {
          for (std::int64_t row = r; row < r + count; ++row)
            online_softmax(block, row, block.seen_from(j0, row), depth, result, Dp);
          strip_product<S>(result + r * Dp, Dp, {block.scores + r * kBlock, kBlock, 1},
                           values + j0 * Dp, Dp, count, Dp, depth, TileSums::More);
        });
      }
      for (std::int64_t r = 0; r < block.rows; ++r) {
        const S sum = sum_of<S>(lanes(block.sums + r * kTileLanes<S>));
        const S inverse = sum == 0 ? S(0) : S(1) / sum;  // 0: a query that sees no key
        T* row = to[i0 + r];
        for (std::int64_t d = 0; d < z.D; ++d) row[d] = narrow<T>(result[r * Dp + d] * inverse);
        lse[head * z.T + i0 + r] = (block.maximum[r] + std::log2(sum)) * static_cast<S>(1 / kLog2E);
      }
    }
  }
}

}  // namespace

void attention(View out, View log_sum_exp, ConstView q, ConstView kv, std::int64_t heads,
               const ops::AttentionMask& mask) {
  if (out.count() == 0) return;
  dispatch(q.dtype(), [&](auto type) {
    using T = decltype(type);
    const AttentionSizes z = sizes_of(q, kv, heads);
    forward<T>(out, log_sum_exp, heads_of(q.data<T>(), kv.data<T>(), z), z, mask);
  });
}

void causal_attention(View out, View log_sum_exp, ConstView qkv, std::int64_t heads) {
  if (out.count() == 0) return;
  dispatch(qkv.dtype(), [&](auto type) {
    using T = decltype(type);
    const AttentionSizes z = sizes_of(qkv, heads);
    forward<T>(out, log_sum_exp, heads_of(qkv.data<T>(), z), z, {});
  });
}

}  // namespace aisc::cpu
