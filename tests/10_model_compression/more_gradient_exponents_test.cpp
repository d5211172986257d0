// Exponents of gradients, and what of them F16 holds: by hand, and beside Float16 itself.
#include "10_model_compression/more/gradient_exponents.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "common/core/rng.h"
#include "tests/support/error_says.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

constexpr double kNoEnd = std::numeric_limits<double>::infinity();

Tensor gradients_of(const std::vector<double>& numbers, DType dtype, Device& device) {
  Tensor g({std::ssize(numbers)}, dtype, device);
  write_doubles(g, numbers);
  return g;
}

InF16 in_f16(const std::vector<double>& numbers, double scale) {
  CpuDevice device;
  InF16 held;
  held.add(gradients_of(numbers, DType::F64, device), scale);
  return held;
}

TEST(GradientExponents, CountsByPowersOfTwo) {
  CpuDevice device;
  const std::vector<double> numbers{1, -1.5, 2, 0.75, -0x1p-30, 0, -0.0};
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16}) {
    GradientExponents exponents;
    exponents.add(gradients_of(numbers, dtype, device));
    const std::map<int, std::int64_t> expected{{-30, 1}, {-1, 1}, {0, 2}, {1, 1}};
    EXPECT_EQ(exponents.counts, expected)
        << "1 and 1.5 have exponent 0, 2 has 1, .75 has -1; of " << name_of(dtype);
    EXPECT_EQ(exponents.zeros, 2) << "0 and -0 have none";
    EXPECT_EQ(exponents.numbers(), 7);
  }
}

TEST(GradientExponents, AddsUp) {
  CpuDevice device;
  GradientExponents exponents;
  exponents.add(gradients_of({4, kNoEnd}, DType::F32, device));
  exponents.add(gradients_of({5, std::nan("")}, DType::F16, device));
  exponents.add({});
  exponents.add(Tensor({0}, DType::F32, device));
  EXPECT_EQ(exponents.counts, (std::map<int, std::int64_t>{{2, 2}}));
  EXPECT_EQ(exponents.not_finite, 2);
  EXPECT_EQ(exponents.numbers(), 4);
}

// Subnormal numbers of F32 and F16 have the exponents of their values.
TEST(GradientExponents, SeesSubnormalNumbers) {
  CpuDevice device;
  GradientExponents exponents;
  exponents.add(gradients_of({0x1p-149, 0x1.8p-130}, DType::F32, device));
  exponents.add(gradients_of({0x1p-24}, DType::F16, device));
  EXPECT_EQ(exponents.counts, (std::map<int, std::int64_t>{{-149, 1}, {-130, 1}, {-24, 1}}));
}

// The handout's worked case.
TEST(GradientsInF16, AScaleOfTwoToThe16ByHand) {
  const std::vector<double> small{0x1p-26};
  EXPECT_EQ(in_f16(small, 1).lost, 1) << "2^-26 is 0 in F16";
  EXPECT_EQ(in_f16(small, 0x1p16).normal, 1) << "2^-26 times 2^16 is 2^-10";
  EXPECT_EQ(in_f16({1.0}, 0x1p16).overflow, 1) << "1 times 2^16 is 65536, more than 65504";
  EXPECT_EQ(in_f16({1.0}, 0x1p15).normal, 1);
}

TEST(GradientsInF16, EndsAreWhereRoundingIs) {
  EXPECT_EQ(in_f16({0x1p-25}, 1).lost, 1) << "halfway between 0 and 2^-24: to even, which is 0";
  EXPECT_EQ(in_f16({std::nextafter(0x1p-25, 1)}, 1).subnormal, 1) << "just above it: 2^-24";
  EXPECT_EQ(in_f16({0x1p-15}, 1).subnormal, 1);
  EXPECT_EQ(in_f16({-0x1p-14}, 1).normal, 1) << "the smallest normal number";
  EXPECT_EQ(in_f16({std::nextafter(65520.0, 0)}, 1).normal, 1) << "rounds to 65504";
  EXPECT_EQ(in_f16({-65520}, 1).overflow, 1) << "halfway to 65536: infinity";
  EXPECT_EQ(in_f16({kNoEnd, std::nan("")}, 1).overflow, 2) << "what is not finite stays so";
}

TEST(GradientsInF16, SharesAreOfWhatWasNotZero) {
  const InF16 held = in_f16({0, 0, 0x1p-30, 0x1p-20, 1, 1}, 1);
  EXPECT_EQ(held.zeros, 2);
  EXPECT_EQ(held.numbers(), 6);
  EXPECT_EQ(held.share(held.lost), 0.25);
  EXPECT_EQ(held.share(held.normal), 0.5);
  EXPECT_EQ(InF16{}.share(0), 0) << "of nothing";
}

TEST(GradientsInF16, AgreesWithExponents) {
  CpuDevice device;
  const Philox random(1, "exponents");
  std::vector<double> numbers;
  for (std::uint64_t i = 0; i < 5000; ++i)
    numbers.push_back(random.normal(2 * i) *
                      std::exp2(static_cast<double>(random.below(i, 60)) - 40));
  GradientExponents exponents;
  exponents.add(gradients_of(numbers, DType::F64, device));
  for (const int e : {0, 7, 16}) {
    std::int64_t lost = 0, overflow = 0;  // by their exponents alone
    for (const auto& [exponent, count] : exponents.counts) {
      lost += exponent + e < -25 ? count : 0;
      overflow += exponent + e > 15 ? count : 0;
    }
    const InF16 held = in_f16(numbers, std::exp2(e));
    EXPECT_EQ(held.lost, lost) << "scale 2^" << e;
    EXPECT_EQ(held.overflow, overflow) << "scale 2^" << e;
    EXPECT_EQ(held.numbers(), exponents.numbers());
  }
}

TEST(GradientsInF16, OnlyFloatingTypesHaveExponents) {
  CpuDevice device;
  const Tensor tokens = Tensor::zeros({3}, DType::I32, device);
  GradientExponents exponents;
  InF16 held;
  EXPECT_TRUE(error_says([&] { exponents.add(tokens); }, {"a floating type is needed, found I32"}));
  EXPECT_TRUE(error_says([&] { held.add(tokens, 1); }, {"a floating type is needed, found I32"}));
}

}  // namespace
}  // namespace aisc
