// The polynomial exponential and the normal distribution: within the errors that their header
// promises, for every size of argument, at the limits and for NaN.
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

// Between each two neighbours in F16: the middle goes to the even one, what is beside it to the
// nearer one. Above 65504 the next would be 65536, which is infinity.
TEST(Narrow, ToFloat16RoundsToNearestAndToEven) {
  const auto half_of = [](std::uint32_t bits) {
    Float16 half;
    half.bits = static_cast<std::uint16_t>(bits);
    return bits == 0x7c00 ? 65536.0f : static_cast<float>(half);
  };
  for (std::uint32_t u = 0; u < 0x7c00; ++u) {
    const float middle = (half_of(u) + half_of(u + 1)) / 2;  // exact
    const std::uint32_t even = u + u % 2;
    for (const float sign : {1.0f, -1.0f}) {
      const std::uint32_t sign_bit = sign < 0 ? 0x8000 : 0;
      const auto bits = [&](float x) { return narrow<Float16>(sign * x).bits; };
      ASSERT_EQ(bits(half_of(u)), u | sign_bit);
      ASSERT_EQ(bits(middle), even | sign_bit) << middle;
      ASSERT_EQ(bits(std::nextafter(middle, 0.0f)), u | sign_bit) << "below " << middle;
      ASSERT_EQ(bits(std::nextafter(middle, kInfinity)), (u + 1) | sign_bit) << "above " << middle;
    }
  }
  EXPECT_EQ(narrow<Float16>(65519.0f).bits, 0x7bff);
  for (const float x : {65520.0f, 65536.0f, 1e6f, 3e38f, kInfinity}) {
    EXPECT_EQ(narrow<Float16>(x).bits, 0x7c00) << x;
    EXPECT_EQ(narrow<Float16>(-x).bits, 0xfc00) << x;
  }
  EXPECT_EQ(narrow<Float16>(std::numeric_limits<float>::quiet_NaN()).bits, 0x7e00);
}

// Whatever bits an F32 has: every exponent, both signs, infinities and NaN.
TEST(Narrow, ToBFloat16HasTheBitsOfItsConversion) {
  for (std::uint64_t u = 0; u < std::uint64_t{1} << 32; u += 4093) {
    const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(u));
    ASSERT_EQ(narrow<BFloat16>(x).bits, BFloat16(x).bits) << x;
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

double phi_of(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

TEST(NormalBelow, IsWithinItsErrorOverItsWholeRange) {
  double below = 0, above = 0;
  for (int i = 0; i <= 1'000'000; ++i) {
    const float x = static_cast<float>(i) * 13e-6f;
    below = std::max(below, relative_error(normal_below(-x), phi_of(-double(x))) - 0x1p-25 * x * x);
    above = std::max(above, std::abs(normal_below(x) - phi_of(x)));
  }
  EXPECT_LT(below, 4e-7);
  EXPECT_LT(above, 2e-7);
  for (float x = 1e-30f; x < 1; x *= 1.7f)
    for (const float both : {x, -x}) {
      EXPECT_LT(relative_error(normal_below(both), phi_of(both)), 4e-7) << both;
    }
}

TEST(NormalBelow, IsNearlyAHalfAtZero) {
  EXPECT_NEAR(normal_below(0.0f), 0.5f, 1e-7);
  EXPECT_EQ(normal_below(-0.0f), normal_below(0.0f));
  EXPECT_EQ(normal_below(0.0), 0.5);
}

TEST(NormalBelow, SaturatesFarFromZero) {
  for (const float x : {13.2f, 50.0f, 1e19f, 1e30f, kInfinity}) {
    EXPECT_EQ(normal_below(-x), 0.0f) << x;
    EXPECT_EQ(normal_density(-x), 0.0f) << x;
    EXPECT_EQ(normal_density(x), 0.0f) << x;
  }
  for (const float x : {5.5f, 50.0f, 1e19f, 1e30f, kInfinity}) EXPECT_EQ(normal_below(x), 1.0f);
  EXPECT_TRUE(std::isnan(normal_below(std::nanf(""))));
  EXPECT_TRUE(std::isnan(normal_density(std::nanf(""))));
}

// .3989, and what the slope of the distribution is elsewhere.
TEST(NormalDensity, IsTheSlopeOfTheDistribution) {
  EXPECT_NEAR(normal_density(0.0), 0.3989422804, 1e-10);
  for (const double x : {-3.0, -1.0, 0.5, 2.0}) {
    EXPECT_NEAR(normal_density(x), (phi_of(x + 1e-5) - phi_of(x - 1e-5)) / 2e-5, 1e-9) << x;
    EXPECT_NEAR(normal_density(static_cast<float>(x)), normal_density(x), 1e-7) << x;
  }
}

}  // namespace
}  // namespace aisc::cpu
