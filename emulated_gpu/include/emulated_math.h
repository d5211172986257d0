// The mathematics of kernels that the C library does not name. What is approximate on a GPU
// (__fdividef) is exact here.
#pragma once

#include <math.h>

#include <bit>
#include <cmath>
#include <cstdint>

inline float __fdividef(float x, float y) { return x / y; }

inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }

inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>(static_cast<std::uint64_t>(x) * y >> 32);
}
inline int __popc(unsigned x) { return std::popcount(x); }
