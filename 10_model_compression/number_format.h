// Floating types by their fields: from a number to the code of the nearest one there is, and back.
#pragma once

#include <cmath>
#include <cstdint>

namespace aisc {

// A sign bit, exponent bits and mantissa bits, from the highest on. Of a code with exponent field e
// and mantissa field m, with M mantissa bits:
//
//   e > 0   (1 + m / 2^M) 2^(e - bias)   normal: bias = 2^(exponent_bits - 1) - 1
//   e = 0   m / 2^M 2^(1 - bias)         subnormal, or 0: as far apart as the smallest normal ones
//
// With `infinity` the largest e is that of infinity (m = 0) and NaN, as in IEEE 754. Without it the
// largest e is of numbers, too, and the last code alone is NaN: F8 E4M3 has so few codes that it
// spends them so (Micikevicius et al., "FP8 formats for deep learning", arXiv 2209.05433, table 1).
struct NumberFormat {
  const char* name;
  int exponent_bits, mantissa_bits;
  bool infinity = true;

  constexpr int bits() const { return 1 + exponent_bits + mantissa_bits; }
  constexpr int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  constexpr int smallest_exponent() const { return 1 - bias(); }  // of normal numbers
  constexpr int largest_exponent() const { return infinity ? bias() : bias() + 1; }

  // Codes without a sign bit; that of the sign is added to them.
  constexpr std::uint32_t sign_code() const { return 1u << (bits() - 1); }
  constexpr std::uint32_t infinity_code() const {  // NaN's where there is none
    return infinity ? ((1u << exponent_bits) - 1) << mantissa_bits : nan_code();
  }
  constexpr std::uint32_t nan_code() const {
    return infinity ? ((2u << exponent_bits) - 1) << (mantissa_bits - 1) : sign_code() - 1;
  }
  constexpr std::uint32_t largest_code() const { return infinity_code() - 1; }

  double largest() const {                 // 65504, 448, 57344
    const double last = infinity ? 1 : 2;  // of the codes of its exponent that are no number
    return std::ldexp(2 - last * std::ldexp(1, -mantissa_bits), largest_exponent());
  }
  double smallest_normal() const { return std::ldexp(1, smallest_exponent()); }
  double smallest_subnormal() const { return std::ldexp(1, smallest_exponent() - mantissa_bits); }
};

inline constexpr NumberFormat kF16{"F16", 5, 10}, kBF16{"BF16", 8, 7};
inline constexpr NumberFormat kE5M2{"E5M2", 5, 2};         // F8 for gradients: range
inline constexpr NumberFormat kE4M3{"E4M3", 4, 3, false};  // F8 for values: one bit more

// What becomes of a number that is rounded to one beyond the largest: infinity (NaN where the
// format has none), or the largest. An infinity that comes in is no number that was too large: it
// stays one in both, so that an overflow elsewhere is not hidden.
enum class Overflow { ToInfinity, Saturate };

// The code of the number of the format that is nearest to `value`; of two that are equally near the
// one whose code is even. NaN becomes nan_code(); a sign stays, also of 0 and NaN.
std::uint32_t encode(const NumberFormat& format, double value,
                     Overflow overflow = Overflow::ToInfinity);

// What a code stands for, exactly.
float decode(const NumberFormat& format, std::uint32_t code);

// `value` as it is after a way through the format.
inline float rounded(const NumberFormat& format, double value,
                     Overflow overflow = Overflow::ToInfinity) {
  return decode(format, encode(format, value, overflow));
}

}  // namespace aisc
