// Short floating types, tested on every value that they have.
#include "common/core/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/error_says.h"

namespace aisc {
namespace {

template <class T>
T from_bits(unsigned bits) {
  T value;
  value.bits = static_cast<std::uint16_t>(bits);
  return value;
}

// What both types are tested for. kInfinity: the bits of infinity; kBeyond: what the next number
// after the largest would be; kQuiet: the bit that quiets a NaN.
struct BF16 {
  using Type = BFloat16;
  static constexpr unsigned kInfinity = 0x7f80, kQuiet = 0x40;
  static constexpr double kBeyond = 0x1p128;
};
struct F16 {
  using Type = Float16;
  static constexpr unsigned kInfinity = 0x7c00, kQuiet = 0x200;
  static constexpr double kBeyond = 65536;
};

template <class T>
class ShortFloats : public ::testing::Test {};
using ShortTypes = ::testing::Types<BF16, F16>;
TYPED_TEST_SUITE(ShortFloats, ShortTypes);

TYPED_TEST(ShortFloats, AllBitPatternsSurviveTheWayToF32AndBack) {
  using T = typename TypeParam::Type;
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const T value = from_bits<T>(bits);
    const auto wide = static_cast<float>(value);
    if ((bits & 0x7fff) > TypeParam::kInfinity) {
      EXPECT_TRUE(std::isnan(wide)) << bits;
      EXPECT_TRUE(std::isnan(static_cast<float>(T(wide)))) << bits;
      EXPECT_TRUE(T(wide).bits & TypeParam::kQuiet) << bits;
      continue;
    }
    ASSERT_EQ(T(wide).bits, bits);
    ASSERT_EQ(T(static_cast<double>(value)).bits, bits);
    ASSERT_EQ(std::signbit(wide), bits >= 0x8000);
  }
}

// Between each pair of neighbours: the middle goes to the even one, what is nearer goes to the
// nearer.
TYPED_TEST(ShortFloats, RoundToNearestTiesToEven) {
  using T = typename TypeParam::Type;
  for (unsigned bits = 0; bits < TypeParam::kInfinity; ++bits) {
    const unsigned next = bits + 1;
    const auto low = static_cast<double>(from_bits<T>(bits));
    const double high =
        next == TypeParam::kInfinity ? TypeParam::kBeyond : static_cast<double>(from_bits<T>(next));
    const auto middle = static_cast<float>((low + high) / 2);  // exact
    const unsigned even = bits % 2 == 0 ? bits : next;
    for (const unsigned sign : {0u, 0x8000u}) {
      const float s = sign ? -1.0f : 1.0f;
      ASSERT_EQ(T(s * middle).bits, sign | even) << bits;
      ASSERT_EQ(T(s * std::nextafter(middle, 0.0f)).bits, sign | bits) << bits;
      ASSERT_EQ(T(s * std::nextafter(middle, INFINITY)).bits, sign | next) << bits;
      // Doubles next to the middle are no ties either, though F32 would make them one.
      ASSERT_EQ(T(s * std::nextafter(double(middle), 0.0)).bits, sign | bits) << bits;
      ASSERT_EQ(T(s * std::nextafter(double(middle), 1e300)).bits, sign | next) << bits;
    }
  }
}

TYPED_TEST(ShortFloats, OverflowToInfinityAndKeepIt) {
  using T = typename TypeParam::Type;
  EXPECT_EQ(T(static_cast<float>(INFINITY)).bits, TypeParam::kInfinity);
  EXPECT_EQ(T(-1e300).bits, 0x8000 | TypeParam::kInfinity);
  EXPECT_EQ(T(std::numeric_limits<float>::max()).bits, TypeParam::kInfinity);
}

TYPED_TEST(ShortFloats, UnderflowToSignedZero) {
  using T = typename TypeParam::Type;
  EXPECT_EQ(T(1e-300).bits, 0);
  EXPECT_EQ(T(-1e-300).bits, 0x8000);
  EXPECT_EQ(T(-0.0f).bits, 0x8000);
}

TEST(Float16, HasTheValuesOfTheStandard) {
  EXPECT_EQ(Float16(1.0f).bits, 0x3c00);
  EXPECT_EQ(Float16(-2.0f).bits, 0xc000);
  EXPECT_EQ(Float16(65504.0f).bits, 0x7bff);
  EXPECT_EQ(Float16(65519.0f).bits, 0x7bff);
  EXPECT_EQ(Float16(65520.0f).bits, 0x7c00);
  EXPECT_EQ(Float16(0x1p-24f).bits, 1);      // the smallest subnormal
  EXPECT_EQ(Float16(0x1p-14f).bits, 0x400);  // the smallest normal
  EXPECT_EQ(Float16(0x1p-25f).bits, 0);      // a tie with zero, which is even
  EXPECT_EQ(Float16(1.0f / 3).bits, 0x3555);
}

TEST(BFloat16, IsTheUpperHalfOfF32) {
  EXPECT_EQ(BFloat16(1.0f).bits, 0x3f80);
  EXPECT_EQ(BFloat16(257.0f).bits, BFloat16(256.0f).bits);  // a tie: 256 is even
  EXPECT_EQ(BFloat16(259.0f).bits, BFloat16(260.0f).bits);
  EXPECT_EQ(BFloat16(0x1p-133f).bits, 1);  // subnormal
}

TEST(DTypes, HaveNamesAndSizes) {
  const DType all[] = {DType::F64, DType::F32, DType::BF16, DType::F16,
                       DType::I64, DType::I32, DType::U8};
  const std::size_t sizes[] = {8, 4, 2, 2, 8, 4, 1};
  for (std::size_t i = 0; i < std::size(all); ++i) {
    EXPECT_EQ(size_of(all[i]), sizes[i]);
    EXPECT_EQ(parse_dtype(name_of(all[i])), all[i]);
    EXPECT_EQ(is_floating(all[i]), i < 4);
  }
  EXPECT_EQ(parse_dtype("bf16"), DType::BF16);
  EXPECT_TRUE(error_says([] { parse_dtype("fp8"); }, {"'fp8'", "expected one of", "BF16"}));
}

TEST(DTypes, DispatchLeadsToTheType) {
  const auto size = [](auto zero) { return sizeof zero; };
  EXPECT_EQ(dispatch(DType::F64, size), 8u);
  EXPECT_EQ(dispatch(DType::F32, size), 4u);
  EXPECT_EQ(dispatch(DType::BF16, size), 2u);
  EXPECT_TRUE(error_says([&] { dispatch(DType::I32, size); }, {"floating", "I32"}));
}

TEST(NotImplementedStub, IsNoError) {
  try {
    throw NotImplemented("ring_all_reduce", "rings.cpp", 12);
  } catch (const Error&) {
    FAIL() << "a stub passes a test that expects an error";
  } catch (const std::logic_error& stub) {
    EXPECT_STREQ(stub.what(), "ring_all_reduce is not implemented yet (rings.cpp:12)");
  }
}

}  // namespace
}  // namespace aisc
