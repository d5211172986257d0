// What the two passes of attention are made of: how many keys a query sees, and blocks of rows
// packed for the product of tiles.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "common/ops/cpu/attention_heads.h"
#include "common/ops/cpu/lanes.h"
#include "common/ops/cpu/tile_product.h"
#include "common/ops/cpu/vector_math.h"
#include "common/ops/ops.h"

namespace aisc::cpu {

// Rows that are multiplied together, and the keys of a block that one of them sees.
struct Strip {
  std::int64_t first, rows, seen;
};

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
  // Strips in all blocks of keys that are seen.
  std::int64_t strip_count() const {
    const std::int64_t blocks = std::max<std::int64_t>(1, (seen() + kBlock - 1) / kBlock);
    return blocks * ((rows + kTileRows - 1) / kTileRows);
  }
  // Of the strips of rows calls f(strip), and g of the strip before: what f has stored can then be
  // read without waiting.
  template <class F, class G>
  void strips(std::int64_t begin, F f, G g) const {
    Strip before{};
    for (std::int64_t r = 0; r < rows; r += kTileRows) {
      const std::int64_t count = std::min(kTileRows, rows - r);
      const Strip strip{r, count, seen_from(begin, r + count - 1)};
      f(strip);
      if (r > 0) g(before);
      before = strip;
    }
    g(before);
  }
  template <class F>
  void strips(std::int64_t begin, F f) const {
    strips(begin, f, [](const Strip&) {});
  }
  // Scores of a strip become minus infinity where a row does not see the key.
  template <class S>
  void hide(S* scores, std::int64_t begin, const Strip& strip) const {
    const std::int64_t width = tile_padded<S>(strip.seen);
    for (std::int64_t i = 0; i < strip.rows; ++i) {
      const std::int64_t seen = seen_from(begin, strip.first + i);
      if (seen >= width) return;
      std::fill(scores + i * kBlock + seen, scores + i * kBlock + width,
                -std::numeric_limits<S>::infinity());
    }
  }

  const std::int64_t rows;

 private:
  std::int64_t seen_[kBlock];
};

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
