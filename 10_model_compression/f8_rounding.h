// Rounding of F32 numbers to 8 bits by their bits: what encode() does by arithmetic, without
// branches, so that loops vectorise. The tests compare the two.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "10_model_compression/number_format.h"
#include "common/core/dtype.h"

namespace aisc {

// To a format of 8 bits times a scale, a power of two. What is beyond the largest saturates.
class F8Rounding {
 public:
  static constexpr std::uint32_t kInfinity = 0x7f800000u, kSign = 0x80000000u;

  explicit F8Rounding(const NumberFormat& format)
      : mantissa_bits_(static_cast<std::uint32_t>(format.mantissa_bits)),
        smallest_(static_cast<std::uint32_t>(format.smallest_exponent() + 127) << 23),
        beyond_(format.infinity ? kInfinity : 0x7fc00000u),
        normal_(smallest_ - (1u << 23)),
        infinity_code_(format.infinity_code()),
        nan_code_(format.nan_code()),
        subnormals_(std::ldexp(1.0f, format.mantissa_bits - format.smallest_exponent())),
        largest_(static_cast<float>(format.largest())) {}
  F8Rounding with(float scale) const {
    F8Rounding scaled = *this;
    scaled.scale_ = scale;
    scaled.inverse_ = 1 / scale;
    return scaled;
  }

  // x, rounded.
  float rounded(float x) const {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x), magnitude = bits & ~kSign;
    const auto finite = std::bit_cast<std::uint32_t>(on_grid(magnitude) * scale_);
    const std::uint32_t special = magnitude == kInfinity ? beyond_ : magnitude;
    return std::bit_cast<float>((magnitude < kInfinity ? finite : special) | (bits & kSign));
  }
  // Its code: the sign is bit 7.
  std::uint8_t code(float x) const {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(x), magnitude = bits & ~kSign;
    const float number = on_grid(magnitude);
    const auto its = std::bit_cast<std::uint32_t>(number);
    const std::uint32_t normal = (its - normal_) >> (23 - mantissa_bits_);
    const float small = std::min(std::bit_cast<float>(smallest_), number) * subnormals_;
    const auto subnormal = static_cast<std::uint32_t>(static_cast<int>(small));
    const std::uint32_t finite = its < smallest_ ? subnormal : normal;
    const std::uint32_t special = magnitude == kInfinity ? infinity_code_ : nan_code_;
    return static_cast<std::uint8_t>((magnitude < kInfinity ? finite : special) |
                                     (bits >> 24 & 0x80u));
  }

 private:
  // |x| / scale as a number of the format, exact in F32. Of infinity and NaN the largest.
  float on_grid(std::uint32_t magnitude) const {
    const float x = std::min(largest_, std::bit_cast<float>(magnitude) * inverse_);
    // Numbers of x's exponent are 2^(exponent - M) apart. F32 numbers of 2^23 times that are just
    // as far apart: a sum with it is rounded to them, to nearest, ties to even, and what is left
    // when it is taken away again is exact.
    const std::uint32_t exponent = std::max(std::bit_cast<std::uint32_t>(x) & kInfinity, smallest_);
    const auto coarse = std::bit_cast<float>(exponent + ((23 - mantissa_bits_) << 23));
    return (x + coarse) - coarse;
  }

  std::uint32_t mantissa_bits_;
  std::uint32_t smallest_;  // the smallest normal number, as F32's bits
  std::uint32_t beyond_;    // what infinity becomes, likewise
  std::uint32_t normal_;    // F32's bits of a normal number are its code, shifted, and so much
  std::uint32_t infinity_code_, nan_code_;
  float subnormals_;  // times a subnormal number: its code
  float largest_, scale_ = 1, inverse_ = 1;
};

// F64 is rounded to odd: the second rounding, to 8 bits, then gives what a single one would have.
template <class T>
float f32_to_round(T x) {
  if constexpr (std::is_same_v<T, double>)
    return round_to_odd(x);
  else
    return static_cast<float>(x);
}

// A rounded number in its tensor's type. BF16 has bits enough for it: the others are 0.
template <class T>
T stored_after_rounding(float x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    BFloat16 upper;
    upper.bits = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
    return upper;
  } else {
    return static_cast<T>(x);
  }
}

// The largest magnitude of n numbers that are finite, as F32's bits, which are in the same order.
template <class T>
std::uint32_t largest_finite_bits(const T* x, std::int64_t n) {
  std::uint32_t largest = 0;
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t bits =
        std::bit_cast<std::uint32_t>(f32_to_round(x[i])) & ~F8Rounding::kSign;
    largest = std::max(largest, bits < F8Rounding::kInfinity ? bits : 0u);
  }
  return largest;
}

// out may be x.
template <class T>
void write_rounded_f8(T* out, const T* x, std::int64_t n, const F8Rounding rounding) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i)
    out[i] = stored_after_rounding<T>(rounding.rounded(f32_to_round(x[i])));
}
template <class T>
void write_f8_codes(std::uint8_t* out, const T* x, std::int64_t n, const F8Rounding rounding) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) out[i] = rounding.code(f32_to_round(x[i]));
}

}  // namespace aisc
