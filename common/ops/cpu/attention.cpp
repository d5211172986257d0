// Attention, block by block: kBlock queries meet kBlock keys, and a block of scores is used and
// forgotten. With the online softmax (Milakov and Gimelshein, 2018) a row keeps a maximum m, the
// sum of 2^(score - m), and the output so far; when a later block raises m, what was summed before
// is scaled by 2^(old m - new m). Scores are multiples of log2(e), so that exponentials are powers
// of two. As these stay far below the largest number, m is raised by more than kSlack or not at
// all, which is rare after a row's first block.
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

constexpr int kSlack = 8;

// A block of queries on its way past the keys.
template <class S>
struct ForwardBlock : QueryBlock {
  using QueryBlock::QueryBlock;
  alignas(64) S scores[2][kTileRows * kBlock];  // of two strips, then their exponentials
  alignas(64) S sums[kBlock * kTileLanes<S>];   // of a row's exponentials, lane by lane
  S maximum[kBlock];
};

// Lane by lane the largest of a row's scores.
template <class S>
[[gnu::always_inline]] inline Lanes<S> largest_lanes(S* scores, std::int64_t width) {
  Lanes<S> top = all_lanes(-std::numeric_limits<S>::infinity());
  for (std::int64_t j = 0; j < width; j += kTileLanes<S>) top = larger<S>(lanes(scores + j), top);
  return top;
}

// Raises m of row r where its largest score `top` is too far above. This depends on no other row.
template <class S>
void raise_maximum(ForwardBlock<S>& block, std::int64_t r, S top, S* out, std::int64_t Dp,
                   TileSums into) {
  const S before = block.maximum[r];
  if (top - before <= kSlack) return;
  block.maximum[r] = top;
  if (into == TileSums::New) return;  // there is nothing yet to be scaled
  const Lanes<S> shrink = exp2_of(all_lanes(before - top));
  lanes(block.sums + r * kTileLanes<S>) *= shrink;
  for (std::int64_t d = 0; d < Dp; d += kTileLanes<S>) lanes(out + r * Dp + d) *= shrink;
}

// The scores of a strip become 2^(score - m), and are summed.
template <class S>
void online_softmax(ForwardBlock<S>& block, S* scores, const Strip& strip, S* out, std::int64_t Dp,
                    TileSums into) {
  constexpr std::int64_t kLanes = kTileLanes<S>;
  const std::int64_t width = tile_padded<S>(strip.seen);
  Lanes<S> above = all_lanes(-std::numeric_limits<S>::infinity());
  for (std::int64_t i = 0; i < strip.rows; ++i)
    above = larger<S>(largest_lanes(scores + i * kBlock, width) - block.maximum[strip.first + i],
                      above);
  if (largest_of<S>(above) > kSlack)
    for (std::int64_t i = 0; i < strip.rows; ++i)
      raise_maximum(block, strip.first + i,
                    largest_of<S>(largest_lanes(scores + i * kBlock, width)), out, Dp, into);
  for (std::int64_t i = 0; i < strip.rows; ++i) {
    Lanes<S> sum{};
    for (std::int64_t j = i * kBlock; j < i * kBlock + width; j += kLanes)
      sum += lanes(scores + j) = exp2_of(lanes(scores + j) - block.maximum[strip.first + i]);
    auto& sums = lanes(block.sums + (strip.first + i) * kLanes);
    sums = into == TileSums::New ? sum : sums + sum;
  }
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
      RowsAhead ahead(block.strip_count());
      ahead.write(to, i0, z.T, z.D);
      const Place next = Place{head, i0, packed}.next(z);
      if (next.head < heads) {
        const std::int64_t b1 = next.head / z.H, h1 = next.head % z.H;
        ahead.read(in.queries(b1, h1), next.query, z.T, z.D);
        ahead.read(in.keys(b1, h1), next.key, z.K, z.D);
        ahead.read(in.values(b1, h1), next.key, z.K, z.D);
      }
      std::fill(block.maximum, block.maximum + kBlock, std::numeric_limits<S>::lowest());

      // Before each turn `result` and `sums` are those of the keys before j0.
      for (std::int64_t j0 = 0; j0 == 0 || j0 < seen; j0 += kBlock) {
        const TileSums into = j0 == 0 ? TileSums::New : TileSums::More;
        const auto scores_of = [&](const Strip& strip) {
          return block.scores[strip.first / kTileRows % 2];
        };
        const auto score = [&](const Strip& strip) {
          ahead.some();
          strip_product<S>(scores_of(strip), kBlock, {queries + strip.first * Dp, Dp, 1},
                           keys + j0 * Dp, kBlock, strip.rows, tile_padded<S>(strip.seen), Dp,
                           TileSums::New);
        };
        const auto add = [&](const Strip& strip) {
          if (strip.seen == 0 && into == TileSums::More) return;
          S* scores = scores_of(strip);
          block.hide(scores, j0, strip);
          online_softmax(block, scores, strip, result, Dp, into);
          strip_product<S>(result + strip.first * Dp, Dp, {scores, kBlock, 1}, values + j0 * Dp, Dp,
                           strip.rows, Dp, strip.seen, into);
        };
        block.strips(j0, score, add);
      }
      for (std::int64_t r = 0; r < block.rows; ++r) {
        const S sum = sum_of<S>(lanes(block.sums + r * kTileLanes<S>));
        const S inverse = sum == 0 ? S(0) : S(1) / sum;  // 0: a query that sees no key
        T* row = to[i0 + r];
#pragma omp simd
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
