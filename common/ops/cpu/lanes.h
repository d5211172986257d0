// The vectors that a tile consists of, as values: what attention computes between its products.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <utility>

#include "common/ops/cpu/tile_product.h"

namespace aisc::cpu {

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

template <class S>
[[gnu::always_inline]] inline Lanes<S> all_lanes(S x) {
  return Lanes<S>{} + x;
}

// A comparison that drops a NaN in `a` is one instruction.
template <class S>
[[gnu::always_inline]] inline Lanes<S> larger(Lanes<S> a, Lanes<S> b) {
  return a > b ? a : b;
}

// 2^x for x < 128, relative error below 2e-7: exactly 0 below -126.5, so that hardly a result is
// subnormal, which would be slow. A NaN stays a NaN.
[[gnu::always_inline]] inline Lanes<float> exp2_of(Lanes<float> x) {
  using Words [[gnu::vector_size(kTileShape.vector_bytes)]] = std::uint32_t;
  // Adding 1.5 * 2^23 rounds x to a whole number, which is then in the last bits of the sum: there
  // 127 more make it the exponent of a power of two, and 0 for the least x.
  constexpr float kShift = 0x1.8p23f + 127.0f;
  x = larger<float>(all_lanes(-127.0f), x);
  const Lanes<float> shifted = x + kShift, r = x - (shifted - kShift);
  Lanes<float> p = 1.32647272e-3f * r + 9.67151268e-3f;
  p = p * r + 5.55073374e-2f;
  p = p * r + 2.40222421e-1f;
  p = p * r + 6.93146978e-1f;
  p = p * r + 1.0f;
  return p * std::bit_cast<Lanes<float>>(std::bit_cast<Words>(shifted) << 23);
}
inline Lanes<double> exp2_of(Lanes<double> x) {
  for (std::int64_t i = 0; i < kTileLanes<double>; ++i) x[i] = std::exp2(x[i]);
  return x;
}

// What f(f(a, b), ...) makes of all lanes: halves change places, then quarters, and so on, until
// each lane has met all others.
template <class S, int distance = kTileLanes<S> / 2, class F>
[[gnu::always_inline]] inline S across(Lanes<S> x, F f) {
  if constexpr (distance == 0) {
    return x[0];
  } else {
    const Lanes<S> other = [&]<int... lane>(std::integer_sequence<int, lane...>) {
      return __builtin_shufflevector(x, x, (lane ^ distance)...);
    }
    (std::make_integer_sequence<int, static_cast<int>(kTileLanes<S>)>());
    return across<S, distance / 2>(f(x, other), f);
  }
}
template <class S>
[[gnu::always_inline]] inline S largest_of(Lanes<S> x) {
  return across<S>(x, larger<S>);
}
template <class S>
[[gnu::always_inline]] inline S sum_of(Lanes<S> x) {
  return across<S>(x, [](Lanes<S> a, Lanes<S> b) { return a + b; });
}

}  // namespace aisc::cpu
