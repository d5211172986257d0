// Rounding of F32 numbers to 8 bits by their bits: what encode() does by arithmetic, without
// branches, so that loops vectorise. The tests compare the two. Kernels call it, too.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "10_model_compression/number_format.h"
#include "common/core/dtype.h"

// nvcc wants to be told what both processors call, and has no std::bit_cast in kernels.
#ifdef __CUDACC__
#define AISC_ON_BOTH __host__ __device__
#else
#define AISC_ON_BOTH
#endif

namespace aisc {

AISC_ON_BOTH inline std::uint32_t f32_bits(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  return std::bit_cast<std::uint32_t>(x);
#endif
}
AISC_ON_BOTH inline float f32_of_bits(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}

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
  AISC_ON_BOTH F8Rounding with(float scale) const {
    F8Rounding scaled = *this;
    scaled.scale_ = scale;
    scaled.inverse_ = 1 / scale;
    return scaled;
  }

  // f8_scale() of a finite number that is 0 or more, by its bits: exponents differ by those of it
  // and of the format's largest, and by one more if its mantissa is the larger one.
  AISC_ON_BOTH float scale_for(std::uint32_t bits) const {
    constexpr std::uint32_t kMantissa = (1u << 23) - 1;
    constexpr int kSmallest = 127 - 100;  // 2^-100, for subnormal numbers, too
    const std::uint32_t most = f32_bits(largest_);
    const int exponent = static_cast<int>(bits >> 23) - static_cast<int>(most >> 23) + 127 +
                         ((bits & kMantissa) > (most & kMantissa) ? 1 : 0);
    const auto field = static_cast<std::uint32_t>(exponent > kSmallest ? exponent : kSmallest);
    return bits == 0 ? 1.0f : f32_of_bits(field << 23);
  }

  // x, rounded.
  AISC_ON_BOTH float rounded(float x) const {
    const std::uint32_t bits = f32_bits(x), magnitude = bits & ~kSign;
    const std::uint32_t finite = f32_bits(on_grid(magnitude) * scale_);
    const std::uint32_t special = magnitude == kInfinity ? beyond_ : magnitude;
    return f32_of_bits((magnitude < kInfinity ? finite : special) | (bits & kSign));
  }
  // Its code: the sign is bit 7.
  AISC_ON_BOTH std::uint8_t code(float x) const {
    const std::uint32_t bits = f32_bits(x), magnitude = bits & ~kSign;
    const float number = on_grid(magnitude);
    const std::uint32_t its = f32_bits(number), smallest = smallest_;
    const std::uint32_t normal = (its - normal_) >> (23 - mantissa_bits_);
    const float below = f32_of_bits(its < smallest ? its : smallest) * subnormals_;
    const auto subnormal = static_cast<std::uint32_t>(static_cast<int>(below));
    const std::uint32_t finite = its < smallest ? subnormal : normal;
    const std::uint32_t special = magnitude == kInfinity ? infinity_code_ : nan_code_;
    return static_cast<std::uint8_t>((magnitude < kInfinity ? finite : special) |
                                     (bits >> 24 & 0x80u));
  }
  // What a code stands for, times the scale.
  AISC_ON_BOTH float number(std::uint8_t code) const {
    const std::uint32_t magnitude = code & 0x7fu;
    const std::uint32_t normal = (magnitude << (23 - mantissa_bits_)) + normal_;
    const std::uint32_t subnormal = f32_bits(static_cast<float>(magnitude) / subnormals_);
    const std::uint32_t finite =
        f32_bits(f32_of_bits(magnitude >> mantissa_bits_ > 0 ? normal : subnormal) * scale_);
    const std::uint32_t special = magnitude == infinity_code_ ? beyond_ : 0x7fc00000u;
    return f32_of_bits((magnitude < infinity_code_ ? finite : special) | (code & 0x80u) << 24);
  }

 private:
  // |x| / scale as a number of the format, exact in F32. Of infinity and NaN the largest.
  AISC_ON_BOTH float on_grid(std::uint32_t magnitude) const {
    const float scaled = f32_of_bits(magnitude) * inverse_;
    const float x = scaled < largest_ ? scaled : largest_;
    // Numbers of x's exponent are 2^(exponent - M) apart. F32 numbers of 2^23 times that are just
    // as far apart: a sum with it is rounded to them, to nearest, ties to even, and what is left
    // when it is taken away again is exact.
    const std::uint32_t of_x = f32_bits(x) & kInfinity;
    const std::uint32_t exponent = of_x > smallest_ ? of_x : smallest_;
    const float coarse = f32_of_bits(exponent + ((23 - mantissa_bits_) << 23));
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
    upper.bits = static_cast<std::uint16_t>(f32_bits(x) >> 16);
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
    const std::uint32_t bits = f32_bits(f32_to_round(x[i])) & ~F8Rounding::kSign;
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

#undef AISC_ON_BOTH
