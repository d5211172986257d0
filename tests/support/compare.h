// Is this tensor what it should be? If not: how many elements are off, which is the worst, by how
// much, and how much was allowed.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/core/tensor.h"

namespace aisc {

// How far an element may be from its expected value e: relative * max(|e|, root mean square of all
// expected values, scale). Not |e| alone, because sums lose precision relative to what they are
// summed from, not to what is left after cancellation. `scale` is for results that all cancel: the
// size of the terms, where a test knows it.
struct Tolerance {
  double relative;
  double scale = 0;
};

// F64: sums of a few thousand terms, each rounded at 1.1e-16, with two powers of ten to spare.
inline constexpr Tolerance kF64Tolerance{1e-12};
// F32: 64 unit roundoffs (2^-24). The errors of a sum of n terms grow like sqrt(n) when blocked or
// vectorised, and n is a few thousand in these tests; the polynomial exp and tanh add two or three.
inline constexpr Tolerance kF32Tolerance{64 * 0x1p-24};
// BF16, F16: sums are kept in F32 and rounded once, to 8 or 11 significant bits: half a last place,
// 2^-8 or 2^-11 of the value, on top of F32's error. Tight on purpose: rounding twice makes tests
// fail.
inline constexpr Tolerance kBF16Tolerance{0x1p-8 + kF32Tolerance.relative};
inline constexpr Tolerance kF16Tolerance{0x1p-11 + kF32Tolerance.relative};

// The tolerance of a result that is stored in `dtype` after sums in F32 (F64 for F64); `growth`
// multiplies it where a test has a reason to expect more, which it says.
Tolerance tolerance_of(DType dtype, double growth = 1.0);

// NaN is close to NaN only, an infinity to itself only. Sizes that differ are a failure too.
::testing::AssertionResult all_close(ConstView actual, const std::vector<double>& expected,
                                     Tolerance tolerance);

// Succeeds if at least one element is NaN: what went in as NaN must not come out as a number.
::testing::AssertionResult has_nan(ConstView x);

// The indices of element i of a tensor of this shape: "(1, 0, 3)".
std::string index_string(const Shape& shape, std::int64_t i);

}  // namespace aisc
