// The arithmetic of collectives against sums, products, minima and maxima taken one by one.
#include "common/comm/backend/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/core/dtype.h"
#include "tests/support/conformance.h"

namespace aisc {
namespace {

// Small whole numbers, exact in every type, and which differ between buffers.
std::int64_t value(int buffer, std::int64_t i, ReduceOp op) {
  const std::int64_t n = (i * 7 + buffer * 5) % 11;
  return op == ReduceOp::Product ? 1 + n / 9 : n;  // products stay below 2^9
}
template <class T>
T number(std::int64_t x) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(x);
  else
    return static_cast<T>(static_cast<double>(x));
}
template <class T>
double as_double(T x) {
  return static_cast<double>(x);
}

template <class T>
using Buffers = std::vector<std::vector<T>>;

// `buffers` of `count` values and one 77 behind them, which nobody may touch.
template <class T>
Buffers<T> make_buffers(int buffers, std::int64_t count, ReduceOp op) {
  Buffers<T> all;
  for (int b = 0; b < buffers; ++b) {
    all.emplace_back();
    for (std::int64_t i = 0; i < count; ++i) all.back().push_back(number<T>(value(b, i, op)));
    all.back().push_back(number<T>(77));
  }
  return all;
}
template <class T>
void reduce_buffers(const Buffers<T>& ins, Buffers<T>& outs, ReduceOp op) {
  std::vector<const void*> from;
  std::vector<void*> to;
  for (const auto& in : ins) from.push_back(in.data());
  for (auto& out : outs) to.push_back(out.data());
  const auto count = static_cast<std::int64_t>(ins[0].size()) - 1;
  reduce_all(from, to, count, DTypeOf<T>::value, op);
}
template <class T>
void expect_combined(const Buffers<T>& outs, int inputs, std::int64_t count, ReduceOp op) {
  for (const auto& out : outs) {
    for (std::int64_t i = 0; i < count; ++i) {
      auto expected = static_cast<double>(value(0, i, op));
      for (int b = 1; b < inputs; ++b)
        expected = conformance::fold(op, expected, static_cast<double>(value(b, i, op)));
      ASSERT_EQ(as_double(out[static_cast<std::size_t>(i)]),
                as_double(number<T>(static_cast<std::int64_t>(expected))))
          << name_of(DTypeOf<T>::value) << ", op " << static_cast<int>(op) << ", element " << i
          << " of " << count << ", " << inputs << " inputs, " << outs.size() << " outputs";
    }
    ASSERT_EQ(as_double(out.back()), 77.0);
  }
}

template <class T>
class Reduce : public ::testing::Test {};
using Types =
    ::testing::Types<double, float, BFloat16, Float16, std::int64_t, std::int32_t, std::uint8_t>;
TYPED_TEST_SUITE(Reduce, Types);

// Counts around the lengths of vectors and of tiles.
constexpr std::int64_t kCounts[] = {0, 1, 7, 31, 32, 33, 255, 257, 1000};

TYPED_TEST(Reduce, CombinesAnyNumberOfInputsIntoAnyNumberOfOutputs) {
  for (const ReduceOp op : conformance::kReduceOps)
    for (const std::int64_t count : kCounts)
      for (const int inputs : {1, 2, 3, 4, 5, 8, 9}) {
        const auto ins = make_buffers<TypeParam>(inputs, count, op);
        for (const int outputs : {1, 2, 3, 6}) {
          auto outs = make_buffers<TypeParam>(outputs, count, ReduceOp::Max);
          reduce_buffers(ins, outs, op);
          expect_combined(outs, inputs, count, op);
        }
        auto in_place = ins;
        reduce_buffers(in_place, in_place, op);
        expect_combined(in_place, inputs, count, op);
      }
}

TYPED_TEST(Reduce, WritesASingleOutputOverAnyOfItsInputs) {
  for (const int inputs : {2, 5})
    for (int over = 0; over < inputs; ++over) {
      auto ins = make_buffers<TypeParam>(inputs, 257, ReduceOp::Sum);
      std::vector<const void*> from;
      for (const auto& in : ins) from.push_back(in.data());
      void* to = ins[static_cast<std::size_t>(over)].data();
      reduce_all(from, {&to, 1}, 257, DTypeOf<TypeParam>::value, ReduceOp::Sum);
      expect_combined(Buffers<TypeParam>{ins[static_cast<std::size_t>(over)]}, inputs, 257,
                      ReduceOp::Sum);
    }
}

TYPED_TEST(Reduce, CombinesOneBufferIntoAnother) {
  for (const ReduceOp op : conformance::kReduceOps)
    for (const std::int64_t count : kCounts) {
      auto buffers = make_buffers<TypeParam>(2, count, op);
      reduce_into(buffers[0].data(), buffers[1].data(), count, DTypeOf<TypeParam>::value, op);
      expect_combined(Buffers<TypeParam>{buffers[0]}, 2, count, op);
    }
}

TYPED_TEST(Reduce, AddsABufferToItself) {
  auto buffers = make_buffers<TypeParam>(1, 33, ReduceOp::Sum);
  reduce_into(buffers[0].data(), buffers[0].data(), 33, DTypeOf<TypeParam>::value, ReduceOp::Sum);
  for (std::int64_t i = 0; i < 33; ++i)
    EXPECT_EQ(as_double(buffers[0][static_cast<std::size_t>(i)]),
              static_cast<double>(2 * value(0, i, ReduceOp::Sum)));
}

// Both functions on two buffers of 33 equal elements: the two results, which must be the same.
template <class T>
T reduce_pair(T a, T b, ReduceOp op) {
  std::vector<T> x(33, a), y(33, b), z(33, a);
  reduce_into(z.data(), y.data(), 33, DTypeOf<T>::value, op);
  const void* ins[] = {x.data(), y.data()};
  void* outs[] = {x.data(), y.data()};
  reduce_all(ins, outs, 33, DTypeOf<T>::value, op);
  for (std::size_t i = 0; i < 33; ++i)
    for (const auto& v : {x, y, z}) {
      const double found = as_double(v[i]), expected = as_double(z[0]);
      EXPECT_TRUE(found == expected || (std::isnan(found) && std::isnan(expected)))
          << name_of(DTypeOf<T>::value) << ": element " << i << " is " << found << ", not "
          << expected;
    }
  return z[0];
}

TEST(ReduceIntegers, WrapRound) {
  constexpr auto kMax32 = std::numeric_limits<std::int32_t>::max();
  constexpr auto kMin32 = std::numeric_limits<std::int32_t>::min();
  EXPECT_EQ(reduce_pair<std::int32_t>(kMax32, 1, ReduceOp::Sum), kMin32);
  EXPECT_EQ(reduce_pair<std::int32_t>(65536, 65537, ReduceOp::Product), 65536);
  EXPECT_EQ(reduce_pair<std::int32_t>(kMin32, -1, ReduceOp::Product), kMin32);
  constexpr auto kMax64 = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(reduce_pair<std::int64_t>(kMax64, kMax64, ReduceOp::Sum), -2);
  EXPECT_EQ(reduce_pair<std::int64_t>(kMax64, 2, ReduceOp::Product), -2);
  EXPECT_EQ(reduce_pair<std::uint8_t>(200, 100, ReduceOp::Sum), 44);
  EXPECT_EQ(reduce_pair<std::uint8_t>(20, 13, ReduceOp::Product), 4);
}

TEST(ReduceIntegers, CompareSignedAndUnsigned) {
  EXPECT_EQ(reduce_pair<std::int32_t>(-3, 2, ReduceOp::Min), -3);
  EXPECT_EQ(reduce_pair<std::int64_t>(-3, 2, ReduceOp::Max), 2);
  EXPECT_EQ(reduce_pair<std::uint8_t>(200, 100, ReduceOp::Max), 200);
}

template <class T>
class ReduceFloating : public ::testing::Test {};
using FloatingTypes = ::testing::Types<double, float, BFloat16, Float16>;
TYPED_TEST_SUITE(ReduceFloating, FloatingTypes);

TYPED_TEST(ReduceFloating, PassesNaNOnFromEitherSide) {
  const auto nan = static_cast<TypeParam>(std::numeric_limits<double>::quiet_NaN());
  const auto infinity = static_cast<TypeParam>(std::numeric_limits<double>::infinity());
  for (const ReduceOp op : conformance::kReduceOps)
    for (const TypeParam other : {number<TypeParam>(-2), number<TypeParam>(0), infinity}) {
      EXPECT_TRUE(std::isnan(as_double(reduce_pair(nan, other, op))));
      EXPECT_TRUE(std::isnan(as_double(reduce_pair(other, nan, op))));
      for (int where = 0; where < 5; ++where) {
        Buffers<TypeParam> buffers(5, std::vector<TypeParam>(34, other));
        buffers[static_cast<std::size_t>(where)].assign(34, nan);
        reduce_buffers(buffers, buffers, op);
        EXPECT_TRUE(std::isnan(as_double(buffers[0][0]))) << where << " of 5";
      }
    }
  EXPECT_EQ(as_double(reduce_pair(number<TypeParam>(-2), infinity, ReduceOp::Min)), -2.0);
}

// 1 is half of the last place of the large number: lost where each sum is rounded, not where the
// sum of all is.
template <class T>
void expect_one_rounding(double large) {
  const auto a = static_cast<T>(large), one = static_cast<T>(1.0);
  Buffers<T> buffers{{a, a}, {one, one}, {one, one}};
  auto outs = Buffers<T>(1, std::vector<T>(2));
  reduce_buffers(buffers, outs, ReduceOp::Sum);
  EXPECT_EQ(as_double(outs[0][0]), large + 2);
  for (const int b : {1, 2})
    reduce_into(buffers[0].data(), buffers[static_cast<std::size_t>(b)].data(), 1,
                DTypeOf<T>::value, ReduceOp::Sum);
  EXPECT_EQ(as_double(buffers[0][0]), large);
}
TEST(ReduceAll, RoundsShortTypesOnce) {
  expect_one_rounding<BFloat16>(256);
  expect_one_rounding<Float16>(2048);
}

TEST(ReduceAll, AddsInTheOrderOfItsInputs) {
  Buffers<float> buffers(10, std::vector<float>(34, 1.0f));
  buffers[0].assign(34, 1e8f);
  buffers[9].assign(34, -1e8f);
  auto outs = Buffers<float>(1, std::vector<float>(34));
  reduce_buffers(buffers, outs, ReduceOp::Sum);
  EXPECT_EQ(outs[0][0], 0.0f);  // each 1 is lost in 1e8
  std::swap(buffers[8], buffers[0]);
  std::swap(buffers[9], buffers[1]);
  reduce_buffers(buffers, outs, ReduceOp::Sum);
  EXPECT_EQ(outs[0][0], 1.0f);  // the first eight are lost in -1e8, the last is not
}

}  // namespace
}  // namespace aisc
