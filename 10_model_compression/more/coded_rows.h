// Products of few rows of x with codes, which are decoded in registers: the kernels of
// quant_product().
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

#include "10_model_compression/quantize.h"
#include "common/core/range.h"
#include "common/ops/cpu/parallel.h"

namespace aisc::coded {

// Codes are taken 64 columns at a time, as 16 or 8 words of 32 bits: so a vector of words becomes
// one of floats by a shift and a subtraction, and no byte changes its place. Lane j
// of shift k is column j * kWordCodes + k, where a word's first byte is its lowest, as it is on
// every processor that this course runs on.
constexpr std::int64_t kBlock = 64;
template <int bits>
constexpr std::int64_t kWordCodes = 32 / bits;
template <int bits>
constexpr std::int64_t kLanes = kBlock / kWordCodes<bits>;
template <int bits>
struct Vectors {
  static constexpr std::size_t kBytes = kLanes<bits> * 4;
  using Words [[gnu::vector_size(kBytes)]] = std::uint32_t;
  using Floats [[gnu::vector_size(kBytes)]] = float;
};
// In memory, wherever it begins. (Members: of a template's alias clang 14 forgets the alignment.)
template <int bits>
struct InMemory {
  static constexpr std::size_t kBytes = Vectors<bits>::kBytes;
  using Words [[gnu::vector_size(kBytes), gnu::aligned(1), gnu::may_alias]] = std::uint32_t;
  using Floats [[gnu::vector_size(kBytes), gnu::aligned(4), gnu::may_alias]] = float;
};

// x as the kernels read it.
struct Left {
  // (groups, blocks of a group, shifts, N, lanes): what meets one vector of codes lies together, of
  // all rows of x. Behind a group's last column there are zeros up to a whole block.
  std::vector<float> columns;
  std::int64_t group = 0;  // floats of a group
};

template <int N, int bits>
inline Left left_of(ConstView x, const ScaleLayout& layout) {
  constexpr std::int64_t codes = kWordCodes<bits>, lanes = kLanes<bits>;
  Left left;
  left.group = (layout.group + kBlock - 1) / kBlock * kBlock * N;
  left.columns.resize(index(layout.groups * left.group));
  for (std::int64_t n = 0; n < N; ++n)
    for (std::int64_t g = 0; g < layout.groups; ++g) {
      const std::int64_t begin = layout.begin(g), count = layout.end(g) - begin;
      const float* from = x.data<float>() + n * layout.columns + begin;
      float* to = left.columns.data() + g * left.group + n * lanes;
      for (std::int64_t block = 0; block < count; block += kBlock, to += N * kBlock)
        for (std::int64_t i = 0; i < std::min(kBlock, count - block); ++i)
          to[i % codes * lanes * N + i / codes] = from[block + i];
    }
  return left;
}

// An F32 of this size is a whole number, and its last bits are the number's: a code put there is
// 2^23 more than itself. So a code less its zero point is a subtraction, where a conversion would
// be one operation more, of those that a processor does one at a time.
constexpr float kShift = 0x1p23f;

// products[k % chains][n] += the products of a vector of words, shifted k times, less `zero` in
// each code, with row n of x; `zero` is kShift more than it is. GCC 12 keeps sums in registers only
// if the loops over them are unrolled early: hence the pragmas.
template <int N, int bits, int chains>
[[gnu::always_inline]] inline void add_block(typename Vectors<bits>::Floats (&products)[chains][N],
                                             const typename Vectors<bits>::Words words,
                                             const float* x, float zero) {
  using Floats = typename Vectors<bits>::Floats;
  constexpr std::uint32_t kMask = (1u << bits) - 1,
                          kExponent = std::bit_cast<std::uint32_t>(kShift);
#pragma GCC unroll 8
  for (int k = 0; k < kWordCodes<bits>; ++k) {
    const auto shifted = std::bit_cast<Floats>((words >> (bits * k) & kMask) | kExponent);
    const Floats numbers = shifted - zero;
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n, x += kLanes<bits>)
      products[k % chains][n] +=
          *reinterpret_cast<const typename InMemory<bits>::Floats*>(x) * numbers;
  }
}

// sums[n] += scale * (the products of so many bytes of codes, a group's, with row n of x), spread
// over the lanes. A sum waits for the one before: so several run beside each other, in chains.
template <int N, int bits>
[[gnu::always_inline]] inline void add_group(typename Vectors<bits>::Floats (&sums)[N],
                                             const std::uint8_t* bytes, std::int64_t count,
                                             const float* x, float scale, float zero) {
  using Floats = typename Vectors<bits>::Floats;
  using Words = typename Vectors<bits>::Words;
  constexpr int kChains = N == 1 ? 4 : 2;
  Floats products[kChains][N];
#pragma GCC unroll 8
  for (int c = 0; c < kChains; ++c)
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) products[c][n] = Floats{};
  constexpr std::int64_t kBytes = kBlock * bits / 8;
  if (count == kBytes) {  // groups of 64, the usual ones: no loop
    add_block<N, bits, kChains>(
        products, *reinterpret_cast<const typename InMemory<bits>::Words*>(bytes), x, zero);
  } else {
    std::int64_t b = 0;
    for (; b + kBytes <= count; b += kBytes, x += N * kBlock)
      add_block<N, bits, kChains>(
          products, *reinterpret_cast<const typename InMemory<bits>::Words*>(bytes + b), x, zero);
    if (b < count) {  // behind the last code x is 0
      Words last{};
      std::memcpy(&last, bytes + b, index(count - b));
      add_block<N, bits, kChains>(products, last, x, zero);
    }
  }
#pragma GCC unroll 8
  for (int n = 0; n < N; ++n) {
    Floats all = products[0][n];
#pragma GCC unroll 8
    for (int c = 1; c < kChains; ++c) all += products[c][n];
    sums[n] += scale * all;
  }
}

// quant_product() of N rows of x.
template <int N, int bits>
void few_rows(View y, ConstView x, const Codes& weight, const float* bias) {
  using Floats = typename Vectors<bits>::Floats;
  const ScaleLayout layout = weight.layout();
  const Left left = left_of<N, bits>(x, layout);
  const std::int64_t O = layout.rows, row_bytes = weight.codes.shape()[1], groups = layout.groups;
  const std::uint8_t* codes = weight.codes.data<std::uint8_t>();
  const float* all_scales = weight.scales.data<float>();
  const std::uint8_t* all_zeros =
      weight.zero_points ? weight.zero_points.data<std::uint8_t>() : nullptr;
  const float middle = kShift + static_cast<float>(weight.middle());
  const float* columns = left.columns.data();
  const std::int64_t group = left.group, group_bytes = layout.group * bits / 8;
  float* out = y.data<float>();
  cpu::parallel_pieces(O, layout.columns, 16, [=](std::int64_t from, std::int64_t to) {
    for (std::int64_t o = from; o < to; ++o) {
      const float* scales = all_scales + layout.first(o);
      const std::uint8_t* zeros = all_zeros ? all_zeros + layout.first(o) : nullptr;
      Floats sums[N];
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) sums[n] = Floats{};
      for (std::int64_t g = 0; g < groups; ++g) {
        const std::int64_t begin = g * group_bytes;
        add_group<N, bits>(sums, codes + o * row_bytes + begin,
                           g + 1 < groups ? group_bytes : row_bytes - begin, columns + g * group,
                           scales[g], zeros ? kShift + static_cast<float>(zeros[g]) : middle);
      }
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) {
        float sum = 0;
        for (std::int64_t l = 0; l < kLanes<bits>; ++l) sum += sums[n][l];
        out[n * O + o] = sum + (bias ? bias[o] : 0);
      }
    }
  });
}

}  // namespace aisc::coded
