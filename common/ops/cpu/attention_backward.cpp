// The gradients of attention, block by block as the forward pass. With P the probabilities and O
// the output of a query ("FlashAttention", algorithm 4):
//   dV += P^T dO,  dP = dO V^T,  dS = P (dP - delta),  dQ += dS K,  dK += dS^T Q,
// where delta = sum over columns of dO * O, and P = 2^(score - log_sum_exp) is computed again. The
// sums of dK and dV stay in a thread's workspace until the last block of queries has passed.
#include <omp.h>

#include "common/ops/cpu/attention_tiles.h"
#include "common/ops/cpu/kernels.h"

namespace aisc::cpu {
namespace {

template <class S>
struct BackwardBlock : QueryBlock {
  using QueryBlock::QueryBlock;
  alignas(64) S p[kBlock * kBlock];   // probabilities
  alignas(64) S ds[kBlock * kBlock];  // dP, then dS
};

// The scores of a strip become probabilities, and dP becomes dS; both are 0 for keys that are not
// seen, up to `columns`.
template <class S>
void score_gradients(BackwardBlock<S>& block, const Strip& strip, std::int64_t columns,
                     const S* log_sums, const S* deltas) {
  const std::int64_t width = tile_padded<S>(strip.seen);
  for (std::int64_t row = strip.first; row < strip.first + strip.rows; ++row) {
    S *p = block.p + row * kBlock, *ds = block.ds + row * kBlock;
    for (std::int64_t j = 0; j < width; j += kTileLanes<S>) {
      const Lanes<S> probability = exp2_of(lanes(p + j) - log_sums[row]);
      lanes(p + j) = probability;
      lanes(ds + j) = probability * (lanes(ds + j) - deltas[row]);
    }
    for (std::int64_t j = width; j < columns; ++j) p[j] = ds[j] = 0;
  }
}

// to = [to +] factor * from, rows begin .. begin + count, D columns.
template <class G, class S>
void store(HeadRows<G> to, std::int64_t begin, std::int64_t count, const S* from, std::int64_t D,
           S factor, Into into) {
  const std::int64_t Dp = tile_padded<S>(D);
  for (std::int64_t t = 0; t < count; ++t, from += Dp) {
    G* row = to[begin + t];
    if (into == Into::Overwrite) {
#pragma omp simd
      for (std::int64_t d = 0; d < D; ++d) row[d] = narrow<G>(from[d] * factor);
    } else {
      for (std::int64_t d = 0; d < D; ++d) row[d] = narrow<G>(widen(row[d]) + from[d] * factor);
    }
  }
}

template <class T, class G>
void backward(const QueriesKeysValues<G>& gradients, ConstView dout,
              const QueriesKeysValues<const T>& in, ConstView out, ConstView log_sum_exp,
              const AttentionSizes& z, const ops::AttentionMask& mask, Into into) {
  using S = Accumulator<T>;
  const std::int64_t Dp = tile_padded<S>(z.D), heads = z.B * z.H;
  const std::int64_t all = (z.K + kBlock - 1) / kBlock * kBlock * Dp, one = kBlock * Dp;
  const std::int64_t part = 5 * all + 4 * one;
  const Tensor workspace({omp_get_max_threads() * part}, DTypeOf<S>::value, out.device(),
                         Purpose::Workspace);
  const Heads<const T> outputs{out.data<T>(), z.T, z.H * z.D, z.D};
  const Heads<const T> douts{dout.data<T>(), z.T, z.H * z.D, z.D};
  const S* lse = log_sum_exp.data<S>();
  S* shared = workspace.data<S>();
  const S scale = static_cast<S>(1 / std::sqrt(static_cast<double>(z.D)));
  const S log2e = static_cast<S>(kLog2E), ln2 = static_cast<S>(1 / kLog2E);
#pragma omp parallel for schedule(static)
  for (std::int64_t head = 0; head < heads; ++head) {
    const std::int64_t b = head / z.H, h = head % z.H;
    const HeadRows<const T> queries_in = in.queries(b, h), keys_in = in.keys(b, h),
                            values_in = in.values(b, h), o = outputs(b, h), d_o = douts(b, h);
    const HeadRows<G> dqueries_out = gradients.queries(b, h), dkeys_out = gradients.keys(b, h),
                      dvalues_out = gradients.values(b, h);
    S *keys = shared + omp_get_thread_num() * part, *keys_transposed = keys + all,
      *values_transposed = keys_transposed + all;
    S *dkeys = values_transposed + all, *dvalues = dkeys + all;
    S *queries = dvalues + all, *dresult = queries + one, *dqueries = dresult + one,
      *rows = dqueries + one;
    std::int64_t packed = 0, stored = 0;  // keys and values, and their gradients

    for (std::int64_t i0 = 0; i0 < z.T; i0 += kBlock) {
      BackwardBlock<S> block(mask, z, b, i0);
      const std::int64_t seen = block.seen(), old = packed;  // keys that earlier queries saw
      for (; packed < seen; packed += kBlock) {
        const std::int64_t count = std::min(kBlock, z.K - packed), at = packed * Dp;
        pack(keys + at, keys_in, packed, count, z.D, S(1));
        transpose_block(keys_transposed + at, keys + at, count, Dp);
        pack(rows, values_in, packed, count, z.D, S(1));
        transpose_block(values_transposed + at, rows, count, Dp);
      }
      pack(queries, queries_in, i0, block.rows, z.D, scale * log2e);
      pack(dresult, d_o, i0, block.rows, z.D, S(1));
      pack(rows, o, i0, block.rows, z.D, S(1));
      S delta[kBlock], log_sums[kBlock];
      for (std::int64_t r = 0; r < block.rows; ++r) {
        Lanes<S> sum{};
        for (std::int64_t d = r * Dp; d < (r + 1) * Dp; d += kTileLanes<S>)
          sum += lanes(rows + d) * lanes(dresult + d);
        delta[r] = sum_of<S>(sum);
        // Not minus infinity, from which a score that is hidden could not be subtracted.
        log_sums[r] = std::max(lse[head * z.T + i0 + r] * log2e, std::numeric_limits<S>::lowest());
      }
      RowsAhead ahead(block.strip_count());
      ahead.write(dqueries_out, i0, z.T, z.D);
      const Place next = Place{head, i0, packed}.next(z);
      if (next.head < heads) {
        const std::int64_t b1 = next.head / z.H, h1 = next.head % z.H;
        for (const Heads<const T>& from : {in.queries, outputs, douts})
          ahead.read(from(b1, h1), next.query, z.T, z.D);
        for (const Heads<const T>& from : {in.keys, in.values})
          ahead.read(from(b1, h1), next.key, z.K, z.D);
      }
      const bool last = i0 + kBlock >= z.T;

      // Before each turn dQ is that of the keys before j0, and the sums of dK and dV those of the
      // queries before i0.
      for (std::int64_t j0 = 0; j0 == 0 || j0 < seen; j0 += kBlock) {
        const std::int64_t columns = std::min(kBlock, seen - j0), at = j0 * Dp;
        RowsAhead gradients_ahead(kBlock / kTileRows);
        if (last) {
          gradients_ahead.write(dkeys_out, j0, j0 + columns, z.D);
          gradients_ahead.write(dvalues_out, j0, j0 + columns, z.D);
        }
        const auto score = [&](const Strip& strip) {
          ahead.some();
          strip_product<S>(block.p + strip.first * kBlock, kBlock,
                           {queries + strip.first * Dp, Dp, 1}, keys_transposed + at, kBlock,
                           strip.rows, tile_padded<S>(strip.seen), Dp, TileSums::New);
        };
        const auto probability_gradient = [&](const Strip& strip) {
          gradients_ahead.some();
          strip_product<S>(block.ds + strip.first * kBlock, kBlock,
                           {dresult + strip.first * Dp, Dp, 1}, values_transposed + at, kBlock,
                           strip.rows, tile_padded<S>(strip.seen), Dp, TileSums::New);
        };
        const auto score_gradient = [&](const Strip& strip) {
          block.hide(block.p + strip.first * kBlock, j0, strip);
          score_gradients(block, strip, columns, log_sums, delta);
        };
        const auto add_to_queries = [&](const Strip& strip) {
          strip_product<S>(dqueries + strip.first * Dp, Dp,
                           {block.ds + strip.first * kBlock, kBlock, 1}, keys + at, Dp, strip.rows,
                           Dp, strip.seen, j0 == 0 ? TileSums::New : TileSums::More);
        };
        block.strips(j0, score);
        block.strips(j0, probability_gradient, score_gradient);
        block.strips(j0, add_to_queries);
        // dV and dK of a strip of keys: of the queries from the first that sees one of them.
        const auto add = [&](S* sums, const S* left, const S* right) {
          const TileSums sums_are = j0 < old ? TileSums::More : TileSums::New;
          if (sums_are == TileSums::New)
            std::fill(sums + at + columns * Dp, sums + at + one, S(0));  // of keys not yet seen
          for (std::int64_t c = 0; c < columns; c += kTileRows) {
            const std::int64_t from = block.first_to_see(j0 + c);
            strip_product<S>(sums + at + c * Dp, Dp, {left + from * kBlock + c, 1, kBlock},
                             right + from * Dp, Dp, std::min(kTileRows, columns - c), Dp,
                             block.rows - from, sums_are);
          }
        };
        add(dvalues, block.p, dresult);
        add(dkeys, block.ds, queries);
        if (last) {  // ds is of scaled scores, and the queries were scaled to powers of two
          store(dkeys_out, j0, columns, dkeys + at, z.D, ln2, into);
          store(dvalues_out, j0, columns, dvalues + at, z.D, S(1), into);
        }
      }
      store(dqueries_out, i0, block.rows, dqueries, z.D, scale, into);
      if (last) stored = seen;
    }
    if (into == Into::Accumulate) continue;
    for (std::int64_t t = stored; t < z.K; ++t) {  // keys that nobody sees
      std::fill(dkeys_out[t], dkeys_out[t] + z.D, G());
      std::fill(dvalues_out[t], dvalues_out[t] + z.D, G());
    }
  }
}

}  // namespace

void attention_backward(View dq, View dkv, ConstView dout, ConstView q, ConstView kv, ConstView out,
                        ConstView log_sum_exp, std::int64_t heads, const ops::AttentionMask& mask,
                        Into into) {
  const AttentionSizes z = sizes_of(q, kv, heads);
  dispatch_or_f32(q.dtype(), dq.dtype(), [&](auto type, auto gradient_type) {
    using T = decltype(type);
    using G = decltype(gradient_type);
    backward<T, G>(heads_of(dq.data<G>(), dkv.data<G>(), z), dout,
                   heads_of(q.data<T>(), kv.data<T>(), z), out, log_sum_exp, z, mask, into);
  });
}

void causal_attention_backward(View dqkv, ConstView dout, ConstView qkv, ConstView out,
                               ConstView log_sum_exp, std::int64_t heads) {
  if (dqkv.count() == 0) return;
  dispatch(qkv.dtype(), [&](auto type) {
    using T = decltype(type);
    const AttentionSizes z = sizes_of(qkv, heads);
    backward<T, T>(heads_of(dqkv.data<T>(), z), dout, heads_of(qkv.data<T>(), z), out, log_sum_exp,
                   z, {}, Into::Overwrite);
  });
}

}  // namespace aisc::cpu
