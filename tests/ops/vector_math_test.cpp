// The polynomial exponential and tanh: within the errors that their header promises, for every size
// of argument, at the limits and for NaN.
#include "common/ops/cpu/vector_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace aisc::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

double relative_error(double found, double expected) {
  return std::abs(found - expected) / std::abs(expected);
}

TEST(Widen, OfEveryFloat16AndBFloat16HasTheBitsOfItsConversion) {
  const auto bits = [](float x) { return std::bit_cast<std::uint32_t>(x); };
  for (std::uint32_t u = 0; u < 0x10000; ++u) {
    Float16 half;
    BFloat16 brain;
    half.bits = brain.bits = static_cast<std::uint16_t>(u);
    ASSERT_EQ(bits(widen(half)), bits(static_cast<float>(half))) << u;
    ASSERT_EQ(bits(widen(brain)), bits(static_cast<float>(brain))) << u;
  }
}

TEST(VectorExp, IsWithinItsErrorOverItsWholeRange) {
  double worst = 0;
  for (int i = 0; i <= 2'000'000; ++i) {
    const float x = -86.9f + static_cast<float>(i) * (88.7f + 86.9f) / 2e6f;
    worst = std::max(worst, relative_error(vector_exp(x), std::exp(double(x))));
  }
  EXPECT_LT(worst, 1.5e-7);
}

TEST(VectorExp, IsExactAtZeroAndGoodAroundIt) {
  EXPECT_EQ(vector_exp(0.0f), 1.0f);
  EXPECT_EQ(vector_exp(-0.0f), 1.0f);
  for (float x = 1e-30f; x < 1; x *= 1.7f) {
    EXPECT_LT(relative_error(vector_exp(x), std::exp(double(x))), 1.5e-7) << x;
    EXPECT_LT(relative_error(vector_exp(-x), std::exp(-double(x))), 1.5e-7) << -x;
  }
}

TEST(VectorExp, SaturatesOutsideItsRange) {
  for (const float x : {-87.5f, -88.0f, -100.0f, -1e30f, -kInfinity})
    EXPECT_EQ(vector_exp(x), 0.0f);
  for (const float x : {88.8f, 100.0f, 1e30f, kInfinity}) EXPECT_EQ(vector_exp(x), kInfinity);
  EXPECT_TRUE(std::isnan(vector_exp(std::nanf(""))));
}

}  // namespace
}  // namespace aisc::cpu
