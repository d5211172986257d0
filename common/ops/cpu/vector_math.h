// What loops over elements are made of: widening and rounding of short types, and an exponential
// without branches, so that compilers turn a loop over them into vector instructions. (GCC
// vectorises std::exp only under -ffast-math, which deletes tests for NaN.) The double version is
// the C library's: F64 is the type that proofs are made in.
//
// Arguments beyond the range of a formula are left alone and their results replaced at the end: a
// range forced upon the argument makes GCC 12 compute the ends' results in branches of their own.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "common/core/dtype.h"

namespace aisc::cpu {

// An element in the type that sums are kept in, and the way back, rounded to nearest, ties to even.
template <class T>
[[gnu::always_inline]] inline Accumulator<T> widen(T x) {
  return static_cast<Accumulator<T>>(x);
}
template <class T>
[[gnu::always_inline]] inline T narrow(Accumulator<T> x) {
  return static_cast<T>(x);
}
// BFloat16(x) with all choices made on 32 bits, which vector instructions like better.
template <>
[[gnu::always_inline]] inline BFloat16 narrow<BFloat16>(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = u + 0x7fffu + ((u >> 16) & 1u), quiet_nan = u | 0x400000u;
  BFloat16 result;
  result.bits = static_cast<std::uint16_t>((x != x ? quiet_nan : rounded) >> 16);
  return result;
}

namespace detail {

// x = n ln 2 + r with n whole and |r| <= ln(2) / 2, for |x| < 2^21. n is negative modulo 2^32.
struct Reduced {
  std::uint32_t n;
  float r;
};
[[gnu::always_inline]] inline Reduced reduce(float x) {
  // Adding 1.5 * 2^23 moves the whole part of x / ln 2, rounded, into the last bits of the sum.
  constexpr float kLog2E = 1.44269504f, kShift = 0x1.8p23f;
  constexpr float kLn2High = 0x1.62e4p-1f, kLn2Low = 0x1.7f7d1cp-20f;  // their sum is ln 2
  const float shifted = x * kLog2E + kShift;
  const float n = shifted - kShift;
  return {std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kShift),
          (x - n * kLn2High) - n * kLn2Low};
}

// exp(r) - 1 for |r| <= ln(2) / 2, within 3e-8 of itself: the polynomial of least greatest error.
[[gnu::always_inline]] inline float expm1_reduced(float r) {
  float p = 0.00138825143f;
  p = p * r + 0.00836654752f;
  p = p * r + 0.0416672006f;
  p = p * r + 0.166665435f;
  p = p * r + 0.5f;
  return p * (r * r) + r;
}

// 2^n for -126 <= n <= 127, and 0 for n = -127.
[[gnu::always_inline]] inline float power_of_two(std::uint32_t n) {
  return std::bit_cast<float>((n + 127u) << 23);
}

}  // namespace detail

// exp(x), relative error below 1e-7. Infinite above 88.723; exactly 0 below -86.99, where the true
// value is less than 1.7e-38: subnormal results are slow on many processors. A NaN stays a NaN.
[[gnu::always_inline]] inline float vector_exp(float x) {
  const auto [n, r] = detail::reduce(x);
  // 2^n = 2 * 2^(n-1): n reaches 128, which alone has no F32.
  const float twice = 2.0f * detail::expm1_reduced(r) + 2.0f;
  const float value = twice * detail::power_of_two(n - 1);
  const float or_zero = x < -86.99f ? 0.0f : value;
  return x > 88.8f ? std::numeric_limits<float>::infinity() : or_zero;
}
inline double vector_exp(double x) { return std::exp(x); }

// The normal distribution's density at x, exp(-x^2 / 2) / sqrt(2 pi).
template <class S>
[[gnu::always_inline]] inline S normal_density(S x) {
  return S(0.39894228040143267794) * vector_exp(S(-0.5) * x * x);
}

// Phi(x) = (1 + erf(x / sqrt(2))) / 2, the probability of a number below x. Far below 0 that sum
// would cancel; its tail is exp(-x^2 / 2) times a smooth function of |x|, which is a polynomial in
// t = 1 / (1 + 0.35 |x|) within 4e-8 of itself: the one of least greatest relative error. What x^2
// is rounded by is an error of the exponential: relative error below 4e-7 + 2^-25 x^2 for x < 0,
// absolute error below 2e-7 for x > 0. Exactly 0 below -13.2, and 1 above 5.5. A NaN stays a NaN.
[[gnu::always_inline]] inline float normal_below(float x) {
  const float t = 1.0f / (1.0f + 0.35f * std::fabs(x));
  float p = -0.0291156278f;
  p = p * t + 0.143821317f;
  p = p * t - 0.255396811f;
  p = p * t + 0.158802925f;
  p = p * t - 0.0228476008f;
  p = p * t + 0.105393812f;
  p = p * t + 0.119862696f;
  p = p * t + 0.139857611f;
  p = p * t + 0.139621658f;
  const float tail = p * t * vector_exp(-0.5f * x * x);
  return x > 0 ? 1.0f - tail : tail;
}
inline double normal_below(double x) { return 0.5 * std::erfc(x * -0.70710678118654752440); }

}  // namespace aisc::cpu
