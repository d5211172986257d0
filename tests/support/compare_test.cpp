// The comparison must fail where it should, and say where and by how much.
#include "tests/support/compare.h"

#include <cmath>

#include "tests/support/error_says.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

using ::testing::AssertionResult;

class AllClose : public ::testing::Test {
 protected:
  Tensor tensor(const std::vector<double>& values, DType dtype = DType::F64) {
    return from_doubles(values, {static_cast<std::int64_t>(values.size())}, dtype, device_);
  }
  static bool says(const AssertionResult& result, const std::string& fragment) {
    return std::string(result.message()).find(fragment) != std::string::npos;
  }

  CpuDevice device_{{.poison = true}};
};

TEST_F(AllClose, AcceptsWhatIsWithinTheTolerance) {
  EXPECT_TRUE(all_close(tensor({1, 2, 3}), {1, 2, 3}, {0}));
  EXPECT_TRUE(all_close(tensor({1, 2, 3 + 1e-9}), {1, 2, 3}, {1e-8}));
  EXPECT_TRUE(all_close(tensor({}), {}, {0}));
}

TEST_F(AllClose, NamesTheWorstElementAndCountsTheOthers) {
  const Tensor x = from_doubles({1, 2, 3, 4, 5.5, 6.25}, {2, 3}, DType::F32, device_);
  const AssertionResult result = all_close(x, {1, 2, 3, 4, 5, 6}, {1e-3});
  EXPECT_FALSE(result);
  EXPECT_TRUE(says(result, "2 of 6 elements (F32) are off")) << result.message();
  EXPECT_TRUE(says(result, "the worst at (1, 1): found 5.5, expected 5, off by 0.5"))
      << result.message();
}

// Small elements are judged by the size of all: cancellation leaves errors of that size.
TEST_F(AllClose, JudgesSmallElementsByTheRootMeanSquare) {
  EXPECT_TRUE(all_close(tensor({1000, 1e-5}), {1000, 0}, {1e-6}));
  EXPECT_FALSE(all_close(tensor({1, 1e-5}), {1, 0}, {1e-6}));
  EXPECT_TRUE(all_close(tensor({1e-5}), {0}, {1e-6, 100.0}));
}

TEST_F(AllClose, RejectsNaNAndInfinityWhereNumbersAreExpected) {
  EXPECT_FALSE(all_close(tensor({1, NAN}), {1, 2}, {1e9}));
  EXPECT_FALSE(all_close(tensor({1, INFINITY}), {1, 2}, {1e9}));
  EXPECT_FALSE(all_close(tensor({1, 2}), {1, NAN}, {1e9}));
  EXPECT_FALSE(all_close(tensor({1, 2}), {1, INFINITY}, {1e9}));
  EXPECT_FALSE(all_close(tensor({-INFINITY}), {INFINITY}, {1e9}));
  EXPECT_TRUE(all_close(tensor({NAN, INFINITY, -INFINITY}), {NAN, INFINITY, -INFINITY}, {0}));
}

TEST_F(AllClose, FindsOutputsThatWereNeverWritten) {
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16})
    EXPECT_FALSE(all_close(Tensor({3}, dtype, device_), {0, 0, 0}, {1e9})) << name_of(dtype);
}

TEST_F(AllClose, RejectsAnotherCount) {
  const AssertionResult result = all_close(tensor({1, 2}), {1, 2, 3}, {1});
  EXPECT_FALSE(result);
  EXPECT_TRUE(says(result, "2 elements of shape (2), expected 3")) << result.message();
}

// One rounding passes; a value that was rounded twice to BF16, or off by one last place, does not.
TEST_F(AllClose, TellsOneRoundingFromTwo) {
  for (const DType dtype : {DType::F32, DType::BF16, DType::F16}) {
    std::vector<double> values;
    for (int i = 0; i < 100; ++i) values.push_back(1 + i / 100.0);
    EXPECT_TRUE(all_close(tensor(values, dtype), values, tolerance_of(dtype)));
  }
  const double last_place = 0x1p-7;
  EXPECT_FALSE(all_close(tensor({1 + last_place}, DType::BF16), {1}, kBF16Tolerance));
  EXPECT_FALSE(all_close(tensor({1 + 0x1p-10}, DType::F16), {1}, kF16Tolerance));
}

TEST(IndexString, CountsTheLastDimensionFastest) {
  EXPECT_EQ(index_string({2, 3, 4}, 0), "(0, 0, 0)");
  EXPECT_EQ(index_string({2, 3, 4}, 23), "(1, 2, 3)");
  EXPECT_EQ(index_string({5}, 3), "(3)");
}

TEST_F(AllClose, HasNaNFindsOne) {
  EXPECT_TRUE(has_nan(tensor({1, NAN, 2})));
  EXPECT_FALSE(has_nan(tensor({1, INFINITY, 2})));
}

TEST(ErrorSays, FailsWithoutAnErrorOrWithoutTheWords) {
  EXPECT_TRUE(error_says([] { fail("matmul: (2, 3)"); }, {"matmul", "(2, 3)"}));
  EXPECT_FALSE(error_says([] { fail("matmul: (2, 3)"); }, {"matmul", "(4, 3)"}));
  EXPECT_FALSE(error_says([] {}, {}));
  // A stub must not pass a test that expects an error.
  EXPECT_FALSE(error_says([] { throw NotImplemented("add", "add.cpp", 3); }, {}));
}

TEST(RandomTensor, IsTheSameForTheSameNameInEveryType) {
  CpuDevice device;
  const Tensor a = random_tensor({100}, DType::F64, device, "a");
  EXPECT_TRUE(same_bits(a, random_tensor({100}, DType::F64, device, "a")));
  EXPECT_FALSE(same_bits(a, random_tensor({100}, DType::F64, device, "b")));
  EXPECT_TRUE(
      all_close(random_tensor({100}, DType::BF16, device, "a"), to_doubles(a), kBF16Tolerance));
  EXPECT_THROW(from_doubles({1, 2}, {3}, DType::F32, device), Error);
}

}  // namespace
}  // namespace aisc
