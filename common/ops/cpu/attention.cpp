// Causal attention, block by block. For each head of each sample, blocks of kBlock queries meet
// blocks of kBlock keys; a block of scores lives on the stack, is used and forgotten. With the
// online softmax (Milakov and Gimelshein, 2018) a row keeps its maximum m, the sum l of exp(score -
// m), and the output so far; when a later block raises m, what was summed before is scaled by
// exp(old m - new m).
//
// One thread takes one head, with its queries, keys and values packed into its own workspace, in
// full precision and padded to whole vectors: memory grows linearly with T.
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/ops/cpu/kernels.h"
#include "common/ops/cpu/tile_product.h"
#include "common/ops/cpu/vector_math.h"

namespace aisc::cpu {
namespace {

constexpr std::int64_t kBlock = 64;

// The sizes of one call, and where things are. T tokens, H heads of D columns; padded: Dp columns,
// Tp rows. `row` is the length of a token's row in qkv, 3 H D.
template <class S>
struct Sizes {
  Sizes(const ConstView& qkv, std::int64_t heads)
      : B(qkv.shape()[0]),
        T(qkv.shape()[1]),
        H(heads),
        D(qkv.shape()[2] / (3 * heads)),
        Dp(tile_padded<S>(D)),
        Tp((T + kBlock - 1) / kBlock * kBlock),
        row(3 * H * D),
        scale(static_cast<S>(1.0 / std::sqrt(static_cast<double>(D)))) {}

  std::int64_t B, T, H, D, Dp, Tp, row;
  S scale;
};

// One buffer per thread, cut into equal parts of Tp * Dp elements.
template <class S>
class Workspace {
 public:
  Workspace(const Sizes<S>& size, std::int64_t parts, Device& device)
      : part_(size.Tp * size.Dp),
        parts_(parts),
        buffer_({omp_get_max_threads() * parts * part_}, DTypeOf<S>::value, device,
                Purpose::Workspace) {}

  S* operator()(std::int64_t part) const {  // of the calling thread
    return buffer_.template data<S>() + (omp_get_thread_num() * parts_ + part) * part_;
  }

 private:
  std::int64_t part_, parts_;
  Tensor buffer_;
};

// to (Tp, Dp) = factor * from, whose rows are `stride` apart; padding becomes 0.
template <class S, class T>
void pack_rows(S* to, const T* from, std::int64_t stride, const Sizes<S>& z, S factor) {
  for (std::int64_t t = 0; t < z.T; ++t) {
    for (std::int64_t d = 0; d < z.D; ++d)
      to[t * z.Dp + d] = factor * static_cast<S>(from[t * stride + d]);
    std::fill(to + t * z.Dp + z.D, to + (t + 1) * z.Dp, S(0));
  }
  std::fill(to + z.T * z.Dp, to + z.Tp * z.Dp, S(0));
}

// to: for each block of rows its transpose (Dp, kBlock), one after the other.
template <class S>
void transpose_blocks(S* to, const S* from, const Sizes<S>& z) {
  for (std::int64_t t0 = 0; t0 < z.Tp; t0 += kBlock)
    for (std::int64_t d = 0; d < z.Dp; ++d)
      for (std::int64_t t = 0; t < kBlock; ++t)
        to[t0 * z.Dp + d * kBlock + t] = from[(t0 + t) * z.Dp + d];
}

// The scores of a block pair: (kBlock, kBlock) = queries (already scaled) times keys^T. A query
// sees keys up to its own position; those after it are minus infinity, whose exponential is exactly
// 0.
template <class S>
void block_scores(S* scores, const S* queries, const S* keys_transposed, const Sizes<S>& z,
                  bool diagonal) {
  std::fill(scores, scores + kBlock * kBlock, S(0));
  tile_product<S>(scores, kBlock, {queries, z.Dp, 1}, keys_transposed, kBlock, kBlock, kBlock,
                  z.Dp);
  if (!diagonal) return;
  for (std::int64_t i = 0; i < kBlock; ++i)
    std::fill(scores + i * kBlock + i + 1, scores + (i + 1) * kBlock,
              -std::numeric_limits<S>::infinity());
}

// Turns a row of scores into exp(score - maximum) in place and returns their sum.
template <class S>
S exponentials(S* row, S maximum) {
  S sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t j = 0; j < kBlock; ++j) {
    row[j] = vector_exp(row[j] - maximum);
    sum += row[j];
  }
  return sum;
}

// The largest of a row, lane by lane: a comparison that drops NaN is one vector instruction, while
// std::max under `reduction` stays scalar. A NaN is not lost: its exponential is NaN.
template <class S>
S row_maximum(const S* row) {
  constexpr std::int64_t kLanes = kTileLanes<S>;
  S lanes[kLanes];
  std::copy(row, row + kLanes, lanes);
  for (std::int64_t j = kLanes; j < kBlock; j += kLanes)
#pragma omp simd
    for (std::int64_t i = 0; i < kLanes; ++i)
      lanes[i] = row[j + i] > lanes[i] ? row[j + i] : lanes[i];
  S maximum = lanes[0];
  for (const S lane : lanes) maximum = lane > maximum ? lane : maximum;
  return maximum;
}

template <class T>
void forward(View out, View log_sum_exp, ConstView qkv, std::int64_t heads) {
  using S = Accumulator<T>;
  const Sizes<S> z(qkv, heads);
  const Workspace<S> workspace(z, 4, out.device());
  const T* input = qkv.data<T>();
  T* output = out.data<T>();
  S* lse = log_sum_exp.data<S>();
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t head = 0; head < z.B * z.H; ++head) {
    const std::int64_t b = head / z.H, h = head % z.H;
    const T* first = input + b * z.T * z.row + 3 * h * z.D;
    S *queries = workspace(0), *keys = workspace(1), *values = workspace(2);
    S* keys_transposed = workspace(3);
    pack_rows<S>(queries, first, z.row, z, z.scale);
    pack_rows<S>(keys, first + z.D, z.row, z, S(1));
    pack_rows<S>(values, first + 2 * z.D, z.row, z, S(1));
    transpose_blocks(keys_transposed, keys, z);
    S* result = keys;  // the keys are not needed any more

    for (std::int64_t i0 = 0; i0 < z.T; i0 += kBlock) {
      alignas(64) S scores[kBlock * kBlock];
      S m[kBlock], l[kBlock];
      std::fill(m, m + kBlock, -std::numeric_limits<S>::infinity());
      std::fill(l, l + kBlock, S(0));
      S* block_out = result + i0 * z.Dp;
      std::fill(block_out, block_out + kBlock * z.Dp, S(0));
      for (std::int64_t j0 = 0; j0 <= i0; j0 += kBlock) {
        block_scores(scores, queries + i0 * z.Dp, keys_transposed + j0 * z.Dp, z, j0 == i0);
        for (std::int64_t i = 0; i < kBlock; ++i) {
          S* row = scores + i * kBlock;
          const S old = m[i];
          m[i] = std::max(old, row_maximum(row));
          const S shrink = vector_exp(old - m[i]);  // 0 in the first block
          l[i] = l[i] * shrink + exponentials(row, m[i]);
          S* row_out = block_out + i * z.Dp;
#pragma omp simd
          for (std::int64_t d = 0; d < z.Dp; ++d) row_out[d] *= shrink;
        }
        tile_product<S>(block_out, z.Dp, {scores, kBlock, 1}, values + j0 * z.Dp, z.Dp, kBlock,
                        z.Dp, kBlock);
      }
      for (std::int64_t i = 0; i < std::min(kBlock, z.T - i0); ++i) {
        const std::int64_t t = i0 + i;
        const S inverse = S(1) / l[i];
        T* to = output + ((b * z.T + t) * z.H + h) * z.D;
        for (std::int64_t d = 0; d < z.D; ++d)
          to[d] = static_cast<T>(block_out[i * z.Dp + d] * inverse);
        lse[head * z.T + t] = m[i] + std::log(l[i]);
      }
    }
  }
}

// With P the probabilities and O the output of a query, as in "FlashAttention", algorithm 4:
//   dV += P^T dO,  dP = dO V^T,  dS = P (dP - delta),  dQ += dS K,  dK += dS^T Q,
// where delta = sum over columns of dO * O, and P = exp(score - log_sum_exp) is computed again.
template <class T>
void backward(View dqkv, ConstView dout, ConstView qkv, ConstView out, ConstView log_sum_exp,
              std::int64_t heads) {
  using S = Accumulator<T>;
  const Sizes<S> z(qkv, heads);
  const Workspace<S> workspace(z, 9, dqkv.device());
  const T *input = qkv.data<T>(), *output = out.data<T>(), *doutput = dout.data<T>();
  const S* lse = log_sum_exp.data<S>();
  T* dinput = dqkv.data<T>();
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t head = 0; head < z.B * z.H; ++head) {
    const std::int64_t b = head / z.H, h = head % z.H, out_row = z.H * z.D;
    const T* first = input + b * z.T * z.row + 3 * h * z.D;
    const std::int64_t out_offset = b * z.T * out_row + h * z.D;
    S *queries = workspace(0), *keys = workspace(1), *values = workspace(2),
      *dresult = workspace(3);
    S *keys_transposed = workspace(4), *values_transposed = workspace(5);
    S *dqueries = workspace(6), *dkeys = workspace(7), *dvalues = workspace(8);
    pack_rows<S>(queries, first, z.row, z, z.scale);
    pack_rows<S>(keys, first + z.D, z.row, z, S(1));
    pack_rows<S>(values, first + 2 * z.D, z.row, z, S(1));
    pack_rows<S>(dresult, doutput + out_offset, out_row, z, S(1));
    transpose_blocks(keys_transposed, keys, z);
    transpose_blocks(values_transposed, values, z);
    for (S* gradient : {dqueries, dkeys, dvalues})
      std::fill(gradient, gradient + z.Tp * z.Dp, S(0));

    for (std::int64_t i0 = 0; i0 < z.T; i0 += kBlock) {
      alignas(64) S probabilities[kBlock * kBlock], dscores[kBlock * kBlock];
      const std::int64_t rows = std::min(kBlock, z.T - i0);
      S delta[kBlock];
      for (std::int64_t i = 0; i < rows; ++i) {
        const T* o = output + out_offset + (i0 + i) * out_row;
        const S* d_o = dresult + (i0 + i) * z.Dp;
        S sum = 0;
        for (std::int64_t d = 0; d < z.D; ++d) sum += static_cast<S>(o[d]) * d_o[d];
        delta[i] = sum;
      }
      for (std::int64_t j0 = 0; j0 <= i0; j0 += kBlock) {
        block_scores(probabilities, queries + i0 * z.Dp, keys_transposed + j0 * z.Dp, z, j0 == i0);
        for (std::int64_t i = 0; i < rows; ++i)
          exponentials(probabilities + i * kBlock, lse[head * z.T + i0 + i]);
        tile_product<S>(dvalues + j0 * z.Dp, z.Dp, {probabilities, 1, kBlock}, dresult + i0 * z.Dp,
                        z.Dp, kBlock, z.Dp, rows);
        std::fill(dscores, dscores + kBlock * kBlock, S(0));
        tile_product<S>(dscores, kBlock, {dresult + i0 * z.Dp, z.Dp, 1},
                        values_transposed + j0 * z.Dp, kBlock, rows, kBlock, z.Dp);
        for (std::int64_t i = 0; i < rows; ++i) {
          S* row = dscores + i * kBlock;
          const S* p = probabilities + i * kBlock;
#pragma omp simd
          for (std::int64_t j = 0; j < kBlock; ++j) row[j] = p[j] * (row[j] - delta[i]);
        }
        tile_product<S>(dqueries + i0 * z.Dp, z.Dp, {dscores, kBlock, 1}, keys + j0 * z.Dp, z.Dp,
                        rows, z.Dp, kBlock);
        tile_product<S>(dkeys + j0 * z.Dp, z.Dp, {dscores, 1, kBlock}, queries + i0 * z.Dp, z.Dp,
                        kBlock, z.Dp, rows);
      }
    }
    T* dfirst = dinput + b * z.T * z.row + 3 * h * z.D;
    for (std::int64_t t = 0; t < z.T; ++t) {
      T* to = dfirst + t * z.row;
      for (std::int64_t d = 0; d < z.D; ++d) {
        to[d] = static_cast<T>(dqueries[t * z.Dp + d] * z.scale);
        to[z.D + d] = static_cast<T>(dkeys[t * z.Dp + d]);  // queries were scaled already
        to[2 * z.D + d] = static_cast<T>(dvalues[t * z.Dp + d]);
      }
    }
  }
}

}  // namespace

void causal_attention(View out, View log_sum_exp, ConstView qkv, std::int64_t heads) {
  if (out.count() == 0) return;
  dispatch(qkv.dtype(), [&](auto type) { forward<decltype(type)>(out, log_sum_exp, qkv, heads); });
}

void causal_attention_backward(View dqkv, ConstView dout, ConstView qkv, ConstView out,
                               ConstView log_sum_exp, std::int64_t heads) {
  if (dqkv.count() == 0) return;
  dispatch(qkv.dtype(),
           [&](auto type) { backward<decltype(type)>(dqkv, dout, qkv, out, log_sum_exp, heads); });
}

}  // namespace aisc::cpu
