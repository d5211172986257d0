// Floating formats by their fields_of: the numbers of the hand cases first, then every code
// of F8 and F16 against an oracle that looks for the nearest_code number in a list of all.
#include "10_model_compression/number_format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <vector>

#include "common/core/dtype.h"
#include "common/core/rng.h"
#include "tests/support/drawn.h"

namespace aisc {
namespace {

constexpr double kInfiniteF64 = std::numeric_limits<double>::infinity();

// "0 1011 000": the fields_of of a code.
std::string fields_of(const NumberFormat& format, std::uint32_t code) {
  std::string text;
  for (int bit = format.bits() - 1; bit >= 0; --bit) {
    text += (code >> bit & 1u) != 0 ? '1' : '0';
    if (bit == format.bits() - 1 || bit == format.mantissa_bits) text += ' ';
  }
  return text;
}

// The value of a code by its fields_of, in doubles; NaN for NaN.
double value_of_code(const NumberFormat& format, std::uint32_t code) {
  const int M = format.mantissa_bits, E = format.exponent_bits;
  const std::uint32_t m = code & ((1u << M) - 1), e = (code >> M) & ((1u << E) - 1);
  const double sign = (code >> (E + M)) != 0 ? -1 : 1;
  const int bias = (1 << (E - 1)) - 1;
  const bool last = e == (1u << E) - 1;
  if (last && format.infinity) return m == 0 ? sign * kInfiniteF64 : std::nan("");
  if (last && m == (1u << M) - 1) return std::nan("");
  const double fraction = static_cast<double>(m) / static_cast<double>(1u << M);
  return sign * (e > 0 ? std::pow(2.0, static_cast<int>(e) - bias) * (1 + fraction)
                       : std::pow(2.0, 1 - bias) * fraction);
}

// All numbers of a format from 0 up, which are in the order of their codes.
std::vector<double> all_numbers_of(const NumberFormat& format) {
  std::vector<double> all;
  for (std::uint32_t code = 0; std::isfinite(value_of_code(format, code)); ++code)
    all.push_back(value_of_code(format, code));
  return all;
}

// The oracle: looks for the two neighbours and takes the nearer one. What lies beyond the largest
// is compared with the number that would come next.
std::uint32_t nearest_code(const NumberFormat& format, const std::vector<double>& numbers,
                           double value) {
  const double size = std::abs(value);
  const std::size_t n = numbers.size();
  const auto above = static_cast<std::size_t>(
      std::lower_bound(numbers.begin(), numbers.end(), size) - numbers.begin());
  const std::uint32_t sign = value < 0 ? format.sign_code() : 0;
  if (above < n && numbers[above] == size) return sign | static_cast<std::uint32_t>(above);
  const double high = above < n ? numbers[above] : 2 * numbers[n - 1] - numbers[n - 2];
  const double low = numbers[above - 1];
  const bool even_below = (above - 1) % 2 == 0;
  const bool down = size - low < high - size || (size - low == high - size && even_below);
  return sign | static_cast<std::uint32_t>(down ? above - 1 : above);
}

void expect_code(const NumberFormat& format, double value, std::uint32_t expected,
                 const char* usual_cause) {
  const std::uint32_t found = encode(format, value);
  EXPECT_EQ(found, expected) << value << " in " << format.name << ": the code "
                             << fields_of(format, expected) << " is expected ("
                             << decode(format, expected) << "), found " << fields_of(format, found)
                             << " (" << decode(format, found) << ").\n"
                             << usual_cause;
}

TEST(Encode, NumbersThatAreThereByHand) {
  const char* cause = "Usual cause: the exponent's field counts from the smallest exponent on.";
  expect_code(kE4M3, 1.0, 0b0'0111'000, cause);
  expect_code(kE4M3, -1.5, 0b1'0111'100, "Usual cause: the sign bit is lost.");
  expect_code(kE4M3, 448, 0b0'1111'110, cause);
  expect_code(kE5M2, 57344, 0b0'11110'11, cause);
  expect_code(kE4M3, 0x1p-6, 0b0'0001'000, cause);
  const char* below =
      "Usual cause: below the smallest normal number the steps become smaller with the number; "
      "they stay as they are at that number.";
  expect_code(kE4M3, 0x1p-9, 0b0'0000'001, below);
  expect_code(kE5M2, 3 * 0x1p-16, 0b0'00000'11, below);
  expect_code(kF16, 0x1p-24, 1, below);
  expect_code(kE4M3, 0.0, 0, "Usual cause: 0 has no exponent; std::ilogb says something of it.");
  expect_code(kE4M3, -0.0, 0b1'0000'000, "Usual cause: -0 < 0 is false; std::signbit sees it.");
}

TEST(Encode, TiesGoToTheEvenCodeByHand) {
  const char* cause =
      "Usual cause: a number in the middle is rounded up; it goes to the even of its neighbours, "
      "so that errors do not all have one sign.";
  expect_code(kE4M3, 17, 0b0'1011'000, cause);  // between 16 and 18
  expect_code(kE4M3, 19, 0b0'1011'010, cause);  // between 18 and 20
  expect_code(kE4M3, 31, 0b0'1100'000, "Usual cause: between 30 and 32 the exponent changes.");
  expect_code(kE4M3, 0x1p-10, 0, cause);       // between 0 and 2^-9
  expect_code(kE4M3, 3 * 0x1p-10, 2, cause);   // between 2^-9 and 2^-8
  expect_code(kE4M3, 15 * 0x1p-10, 8, cause);  // between the last subnormal and 2^-6
  expect_code(kE4M3, 0x1.1p4 + 0x1p-40, 0b0'1011'001,
              "Usual cause: a value just above the middle was shortened before it was rounded.");
}

TEST(Encode, WhatIsBeyondTheLargestByHand) {
  EXPECT_EQ(rounded(kE4M3, 464), 448.0f) << "464 in E4M3 is the middle of 448 and 480, whose code "
                                            "is NaN's: the even one, 448. Usual cause: all that "
                                            "is above 448 overflows, before it is rounded.";
  EXPECT_TRUE(std::isnan(rounded(kE4M3, 464.1))) << "464.1 in E4M3 rounds to 480, which is not "
                                                    "there: NaN, since E4M3 has no infinity.";
  EXPECT_EQ(rounded(kE5M2, 61440), kInfiniteF64)
      << "61440 in E5M2 is the middle of 57344 and 65536: 65536 is the even one, so infinity.";
  EXPECT_EQ(rounded(kE4M3, -1e9, Overflow::Saturate), -448.0f)
      << "-10^9 saturates at the largest, with its sign.";
  EXPECT_EQ(rounded(kE5M2, 1e300, Overflow::Saturate), 57344.0f);
}

// facts/precision: why gradients are scaled, why masters are kept, why sums are long.
TEST(HalfPrecision, LosesASmallGradientUnlessItIsScaled) {
  EXPECT_EQ(rounded(kF16, 0x1p-26), 0.0f)
      << "A gradient of 2^-26 in F16 is 0: it is less than half of 2^-24, the smallest number.";
  EXPECT_EQ(rounded(kF16, 0x1p-26 * 0x1p16), 0x1p-10f)
      << "The same times a scale of 2^16 is exactly 2^-10.";
  EXPECT_EQ(rounded(kF16, 1.0 * 0x1p16), kInfiniteF64)
      << "A gradient of 1.0 times 2^16 is 65536 > 65504: it overflows, and the step is skipped.";
  EXPECT_EQ(rounded(kF16, 65519.9), 65504.0f);
}

TEST(HalfPrecision, NeedsAMasterForUpdatesBelowHalfAStep) {
  double weight = 1, master = 1;
  for (int step = 0; step < 1000; ++step) {
    weight = rounded(kF16, weight + 0x1p-12);
    master = static_cast<float>(master + 0x1p-12);
  }
  EXPECT_EQ(weight, 1.0)
      << "1,000 updates of 2^-12 leave w = 1 in F16 where it is: the next number "
         "is 1 + 2^-10, and each update is less than half of the way.";
  EXPECT_EQ(master, 1 + 1000 * 0x1p-12) << "An F32 master takes all of them.";
  EXPECT_EQ(rounded(kF16, master), 1.244140625f) << "(1 + 0.244) in F16, from the master";
}

TEST(HalfPrecision, SumsStopWhereOneIsHalfAStep) {
  double sum = 0;
  for (int i = 0; i < 4096; ++i) sum = rounded(kF16, sum + 1);
  EXPECT_EQ(sum, 2048.0) << "A dot product of 4,096 ones, summed in F16: from 2,048 on numbers are "
                            "2 apart, and 2,049 is a tie that goes back to 2,048.";
}

TEST(NumberFormatGiven, SizesAreThoseOfTheTable) {
  const auto expect = [](const NumberFormat& f, double largest, double normal, double subnormal) {
    EXPECT_EQ(f.largest(), largest) << f.name;
    EXPECT_EQ(f.smallest_normal(), normal) << f.name;
    EXPECT_EQ(f.smallest_subnormal(), subnormal) << f.name;
    EXPECT_EQ(decode(f, f.largest_code()), static_cast<float>(largest)) << f.name;
  };
  expect(kF16, 65504, 0x1p-14, 0x1p-24);
  expect(kBF16, 0x1.FEp127, 0x1p-126, 0x1p-133);
  expect(kE4M3, 448, 0x1p-6, 0x1p-9);
  expect(kE5M2, 57344, 0x1p-14, 0x1p-16);
}

TEST(Encode, All256CodesOfBothKindsOfF8ComeBack) {
  for (const NumberFormat& format : {kE4M3, kE5M2}) {
    int nans = 0;
    for (std::uint32_t code = 0; code < 256; ++code) {
      const double expected = value_of_code(format, code);
      const float found = decode(format, code);
      if (std::isnan(expected)) {
        ++nans;
        EXPECT_TRUE(std::isnan(found)) << format.name << ' ' << fields_of(format, code);
        EXPECT_EQ(encode(format, found), (code & 0x80u) | format.nan_code()) << "of NaN";
        continue;
      }
      EXPECT_EQ(found, expected) << format.name << ' ' << fields_of(format, code);
      EXPECT_EQ(std::signbit(found), code >= 128) << format.name << ' ' << fields_of(format, code);
      expect_code(format, expected, code, "It is a number of the format: nothing is rounded.");
    }
    EXPECT_EQ(nans, format.infinity ? 6 : 2) << format.name;
  }
}

TEST(Encode, All65536CodesOfHalfPrecisionAreThoseOfTheProcessor) {
  int wrong = 0;
  for (std::uint32_t code = 0; code < 65536 && wrong < 5; ++code) {
    Float16 half;
    half.bits = static_cast<std::uint16_t>(code);
    const auto expected = static_cast<float>(half), found = decode(kF16, code);
    if (std::isnan(expected)) {
      wrong += !std::isnan(found);
      EXPECT_TRUE(std::isnan(found)) << fields_of(kF16, code);
      continue;
    }
    const bool same = std::bit_cast<std::uint32_t>(found) == std::bit_cast<std::uint32_t>(expected);
    wrong += !same || encode(kF16, expected) != code;
    EXPECT_TRUE(same) << fields_of(kF16, code) << ": " << found << ", expected " << expected;
    EXPECT_EQ(encode(kF16, expected), code) << expected;
  }
}

// Every number, the middle to the next one, and both sides of that.
TEST(Encode, IsTheNearestAroundEveryNumber) {
  for (const NumberFormat& format : {kE4M3, kE5M2, kF16}) {
    const std::vector<double> numbers = all_numbers_of(format);
    int wrong = 0;
    for (std::size_t i = 0; i < numbers.size() && wrong < 5; ++i) {
      const double next = i + 1 < numbers.size() ? numbers[i + 1] : 2 * numbers[i] - numbers[i - 1];
      const double middle = (numbers[i] + next) / 2;
      for (const double value : {numbers[i], std::nextafter(middle, 0), middle,
                                 std::nextafter(middle, kInfiniteF64), next})
        for (const double signed_value : {value, -value}) {
          if (signed_value == 0) continue;  // -0 in other tests
          const std::uint32_t expected = nearest_code(format, numbers, signed_value);
          const std::uint32_t found = encode(format, signed_value);
          wrong += found != expected;
          EXPECT_EQ(found, expected)
              << signed_value << " in " << format.name << ": found " << fields_of(format, found)
              << ", expected " << fields_of(format, expected);
        }
    }
  }
}

TEST(Encode, IsTheNearestOfDrawnNumbers) {
  const Philox random(test_seed(), "numbers to encode");
  for (const NumberFormat& format : {kE4M3, kE5M2, kF16, kBF16}) {
    const std::vector<double> numbers = all_numbers_of(format);
    for (std::uint64_t i = 0; i < 3000; ++i) {
      const double value =
          random.normal(2 * i) * std::exp2(static_cast<double>(random.below(2 * i + 1, 40)) - 25);
      if (value == 0) continue;
      ASSERT_EQ(encode(format, value), nearest_code(format, numbers, value))
          << value << " in " << format.name;
    }
  }
}

// The processor's conversions of F32 are the same as this one.
TEST(Encode, OfF32IsTheProcessors) {
  const Philox random(test_seed(), "bits to encode");
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const auto value = std::bit_cast<float>(random.bits(i));
    if (std::isnan(value)) continue;
    ASSERT_EQ(encode(kF16, value), Float16(value).bits) << value;
    ASSERT_EQ(encode(kBF16, value), BFloat16(value).bits) << value;
  }
}

TEST(EncodeGiven, InfinityAndNanAreNotHidden) {
  for (const Overflow overflow : {Overflow::ToInfinity, Overflow::Saturate}) {
    for (const double sign : {1.0, -1.0}) {
      EXPECT_EQ(rounded(kE5M2, sign * kInfiniteF64, overflow), sign * kInfiniteF64);
      EXPECT_TRUE(std::isnan(rounded(kE4M3, sign * kInfiniteF64, overflow)))
          << "E4M3 has no infinity: it is NaN, which is seen, and not 448";
    }
    for (const NumberFormat& format : {kE4M3, kE5M2, kF16, kBF16})
      EXPECT_TRUE(std::isnan(rounded(format, std::nan(""), overflow))) << format.name;
  }
}

}  // namespace
}  // namespace aisc
