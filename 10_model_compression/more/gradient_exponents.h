// How large gradients are, by their exponents, and what of them F16 can hold under a scale.
// Micikevicius et al., "Mixed precision training", arXiv 1710.03740, figure 3.
#pragma once

#include <cstdint>
#include <map>

#include "common/core/tensor.h"

namespace aisc {

// Of numbers g != 0: how many have which exponent, 2^e <= |g| < 2^(e + 1). As F16 sees them:
//
//   e >= 16          infinity, but for rounding (from 65520 on)
//   -14 <= e <= 15   11 bits of mantissa, the first of them not stored
//   -25 <= e < -14   fewer and fewer: multiples of 2^-24
//   e < -25          0
struct GradientExponents {
  std::map<int, std::int64_t> counts;      // of exponents that occur
  std::int64_t zeros = 0, not_finite = 0;  // of numbers without an exponent
  std::int64_t numbers() const;            // all together

  // Of any floating type, on a device whose memory is the host's; nothing of one without numbers.
  void add(ConstView gradients);
};

// What becomes of gradients that are multiplied by a scale and rounded to F16.
struct InF16 {
  std::int64_t zeros = 0;      // were 0 before
  std::int64_t lost = 0;       // |g| scale <= 2^-25: rounded to 0; a tie is, to even
  std::int64_t subnormal = 0;  // below 2^-14, with fewer bits
  std::int64_t normal = 0;
  std::int64_t overflow = 0;  // |g| scale >= 65520: infinity; and what was not finite before
  std::int64_t numbers() const { return zeros + lost + subnormal + normal + overflow; }
  // Of those that were not 0.
  double share(std::int64_t count) const;

  // Adds these, as GradientExponents does.
  void add(ConstView gradients, double scale);
};

}  // namespace aisc
