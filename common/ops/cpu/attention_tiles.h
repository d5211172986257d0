// What the two passes of attention are made of: where the rows of a head lie, how many keys a query
// sees, blocks of rows packed for the product of tiles, and vectors of scores.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "common/ops/cpu/tile_product.h"
#include "common/ops/cpu/vector_math.h"
#include "common/ops/ops.h"

namespace aisc::cpu {

// Queries and keys of a block of scores: with what is multiplied by it, it fills a first-level
// cache.
inline constexpr std::int64_t kBlock = 64;
inline constexpr double kLog2E = 1.4426950408889634;

// B samples of T queries and K keys in H heads of D columns; padded: Dp.
struct AttentionSizes {
  std::int64_t B, T, K, H, D;
};

// The rows of a head of a sample, D elements each.
template <class T>
struct HeadRows {
  T* first;
  std::int64_t stride;
  T* operator[](std::int64_t t) const { return first + t * stride; }
};
// Those of all heads in a tensor (B, tokens, row): neighbouring heads are `head` elements apart.
template <class T>
struct Heads {
  T* data;
  std::int64_t tokens, row, head;
  HeadRows<T> operator()(std::int64_t b, std::int64_t h) const {
    return {data + b * tokens * row + h * head, row};
  }
};
template <class T>
struct QueriesKeysValues {
  Heads<T> queries, keys, values;
};
// Of q (B, T, H D) and kv (2, B, K, H D), keys and values; and of all three in one, (B, T, H 3 D).
inline AttentionSizes sizes_of(const ConstView& q, const ConstView& kv, std::int64_t heads) {
  return {q.shape()[0], q.shape()[1], kv.shape()[2], heads, q.shape()[2] / heads};
}
inline AttentionSizes sizes_of(const ConstView& qkv, std::int64_t heads) {
  return {qkv.shape()[0], qkv.shape()[1], qkv.shape()[1], heads, qkv.shape()[2] / (3 * heads)};
}
template <class T>
QueriesKeysValues<T> heads_of(T* q, T* kv, const AttentionSizes& z) {
  const std::int64_t row = z.H * z.D;
  return {{q, z.T, row, z.D}, {kv, z.K, row, z.D}, {kv + z.B * z.K * row, z.K, row, z.D}};
}
template <class T>
QueriesKeysValues<T> heads_of(T* qkv, const AttentionSizes& z) {
  const auto third = [&](std::int64_t i) {
    return Heads<T>{qkv + i * z.D, z.T, 3 * z.H * z.D, 3 * z.D};
  };
  return {third(0), third(1), third(2)};
}

// The queries first .. first + kBlock, and what they see.
class QueryBlock {
 public:
  QueryBlock(const ops::AttentionMask& mask, const AttentionSizes& z, std::int64_t sample,
             std::int64_t first)
      : rows(std::min(kBlock, z.T - first)) {
    const std::int64_t length = mask.key_lengths ? mask.key_lengths.data<std::int32_t>()[sample]
                                                 : std::numeric_limits<std::int64_t>::max();
    for (std::int64_t r = 0; r < rows; ++r) seen_[r] = mask.seen(first + r, z.K, length);
  }
  std::int64_t seen() const { return seen_[rows - 1]; }  // keys that any of them sees
  // Of keys begin .. begin + kBlock, those that a row sees.
  std::int64_t seen_from(std::int64_t begin, std::int64_t row) const {
    return std::clamp<std::int64_t>(seen_[row] - begin, 0, kBlock);
  }
  // The first row that sees a key.
  std::int64_t first_to_see(std::int64_t key) const {
    return std::upper_bound(seen_, seen_ + rows, key) - seen_;
  }
  // Calls f(first row, rows, the keys from `begin` on that one of them sees), strip by strip.
  template <class F>
  void strips(std::int64_t begin, F f) const {
    for (std::int64_t r = 0; r < rows; r += kTileRows) {
      const std::int64_t count = std::min(kTileRows, rows - r);
      f(r, count, seen_from(begin, r + count - 1));
    }
  }

  const std::int64_t rows;

 private:
  std::int64_t seen_[kBlock];
};

// ---- vectors ------------------------------------------------------------------------------------

// A vector of a tile as a value; and one in memory, where it may begin anywhere.
template <class S>
struct LanesOf {
  using type [[gnu::vector_size(kTileShape.vector_bytes)]] = S;
};
template <class S>
using Lanes = typename LanesOf<S>::type;
template <class S>
[[gnu::always_inline]] inline typename detail::TileVector<S>::type& lanes(S* p) {
  return *reinterpret_cast<typename detail::TileVector<S>::type*>(p);
}

// 2^x, relative error below 2e-7: exactly 0 below -126, which subnormal results would be slow for.
// A NaN stays a NaN.
[[gnu::always_inline]] inline Lanes<float> exp2_of(Lanes<float> x) {
  using Words [[gnu::vector_size(kTileShape.vector_bytes)]] = std::uint32_t;
  // Adding 1.5 * 2^23 rounds x to a whole number, which is then in the last bits of the sum.
  const Lanes<float> shifted = x + 0x1.8p23f, r = x - (shifted - 0x1.8p23f);
  Lanes<float> p = 1.32647272e-3f * r + 9.67151268e-3f;
  p = p * r + 5.55073374e-2f;
  p = p * r + 2.40222421e-1f;
  p = p * r + 6.93146978e-1f;
  p = p * r + 1.0f;
  const Words power = (std::bit_cast<Words>(shifted) + 127u) << 23;
  return x < -126.0f ? Lanes<float>{} : p * std::bit_cast<Lanes<float>>(power);
}
inline Lanes<double> exp2_of(Lanes<double> x) {
  for (std::int64_t i = 0; i < kTileLanes<double>; ++i) x[i] = std::exp2(x[i]);
  return x;
}

// A comparison that drops NaN is one instruction. A NaN is not lost: its exponential is NaN.
template <class S>
[[gnu::always_inline]] inline Lanes<S> larger(Lanes<S> a, Lanes<S> b) {
  return a > b ? a : b;
}
// Halves change places, then quarters, and so on: in the end each lane has met all others.
template <class S, int distance = kTileLanes<S> / 2>
[[gnu::always_inline]] inline S largest_of(Lanes<S> x) {
  if constexpr (distance == 0) {
    return x[0];
  } else {
    const Lanes<S> other = [&]<int... lane>(std::integer_sequence<int, lane...>) {
      return __builtin_shufflevector(x, x, (lane ^ distance)...);
    }
    (std::make_integer_sequence<int, static_cast<int>(kTileLanes<S>)>());
    return largest_of<S, distance / 2>(larger<S>(x, other));
  }
}
template <class S>
S sum_of(Lanes<S> x) {
  S sum = 0;
  for (std::int64_t i = 0; i < kTileLanes<S>; ++i) sum += x[i];
  return sum;
}

// ---- blocks of rows -----------------------------------------------------------------------------

// Asks for rows that are read, or written, while something else is computed.
enum class For { Reading, Writing };
template <For use, class T>
void fetch(HeadRows<T> rows, std::int64_t begin, std::int64_t end, std::int64_t columns) {
  constexpr std::int64_t kLine = 64 / sizeof(T);
  for (std::int64_t t = begin; t < end; ++t)
    for (std::int64_t d = 0; d < columns; d += kLine)
      __builtin_prefetch(rows[t] + d, use == For::Writing, 2);
}

// to (count, Dp) = factor * rows begin .. begin + count; the columns beyond D become 0.
template <class S, class T>
void pack(S* to, HeadRows<const T> rows, std::int64_t begin, std::int64_t count, std::int64_t D,
          S factor = 1) {
  const std::int64_t Dp = tile_padded<S>(D);
  for (std::int64_t t = 0; t < count; ++t, to += Dp) {
    const T* from = rows[begin + t];
#pragma omp simd
    for (std::int64_t d = 0; d < D; ++d) to[d] = factor * widen(from[d]);
    for (std::int64_t d = D; d < Dp; ++d) to[d] = 0;
  }
}

// A square of as many rows as a vector has lanes. Each turn deals the lanes of two halves of the
// rows like two halves of a pack of cards; after log2(lanes) turns rows are columns.
template <class S>
[[gnu::always_inline]] inline void transpose_square(S* to, std::int64_t to_stride, S* from,
                                                    std::int64_t from_stride) {
  constexpr int kLanes = static_cast<int>(kTileLanes<S>);
  Lanes<S> x[kLanes], y[kLanes];
  for (int i = 0; i < kLanes; ++i) x[i] = lanes(from + i * from_stride);
  for (int turn = 1; turn < kLanes; turn *= 2) {
    [&]<int... lane>(std::integer_sequence<int, lane...>) {
      for (int i = 0; i < kLanes / 2; ++i) {
        const Lanes<S>&a = x[i], &b = x[i + kLanes / 2];
        y[2 * i] = __builtin_shufflevector(a, b, (lane / 2 + lane % 2 * kLanes)...);
        y[2 * i + 1] =
            __builtin_shufflevector(a, b, (kLanes / 2 + lane / 2 + lane % 2 * kLanes)...);
      }
    }
    (std::make_integer_sequence<int, kLanes>());
    for (int i = 0; i < kLanes; ++i) x[i] = y[i];
  }
  for (int i = 0; i < kLanes; ++i) lanes(to + i * to_stride) = x[i];
}

// to (Dp, kBlock) = from (count, Dp), transposed; the columns beyond `count` become 0.
template <class S>
void transpose_block(S* to, S* from, std::int64_t count, std::int64_t Dp) {
  constexpr std::int64_t kLanes = kTileLanes<S>;
  std::int64_t t = 0;
  for (; t + kLanes <= count; t += kLanes)
    for (std::int64_t d = 0; d < Dp; d += kLanes)
      transpose_square(to + d * kBlock + t, kBlock, from + t * Dp + d, Dp);
  for (; t < kBlock; ++t)
    for (std::int64_t d = 0; d < Dp; ++d) to[d * kBlock + t] = t < count ? from[t * Dp + d] : 0;
}

}  // namespace aisc::cpu
