// What a student reads where numbers are wrong.
#include "tests/support/numbers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tests/support/tensors.h"

namespace aisc {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

Tensor numbers(const std::vector<double>& values, Device& device) {
  Tensor tensor({static_cast<std::int64_t>(values.size())}, DType::F64, device);
  write_doubles(tensor, values);
  return tensor;
}

TEST(Numbers, ThatAreRightAreNoFailure) {
  CpuDevice device;
  EXPECT_TRUE(numbers_are("x", numbers({1, 2, 1e9}, device), {1, 2, 1e9 + 1e-4}));
  EXPECT_TRUE(numbers_are("x", numbers({}, device), {}));
}

TEST(Numbers, ThatAreWrongAreCounted) {
  CpuDevice device;
  const auto result =
      numbers_are("2 ranks, rank 1: gradients", numbers({1, 7, kNaN, 4}, device), {1, 2, 3, 4});
  EXPECT_FALSE(result);
  EXPECT_STREQ(result.message(),
               "2 ranks, rank 1: gradients[1] is 7, expected 2; 2 of 4 numbers are wrong.");
}

TEST(Numbers, OfAKnownMistakeNameIt) {
  CpuDevice device;
  const std::vector<KnownMistake> mistakes = {{"nobody divided", {4, 8}}, {"it was lost", {0, 0}}};
  const auto message = [&](const std::vector<double>& found) {
    return std::string(numbers_are("x", numbers(found, device), {2, 4}, mistakes).message());
  };
  EXPECT_THAT(message({4, 8}), HasSubstr("\nAll numbers are as if nobody divided."));
  EXPECT_THAT(message({0, 0}), HasSubstr("as if it was lost."));
  EXPECT_THAT(message({4, 0}), Not(HasSubstr("as if")));
}

TEST(Numbers, ThatAreMissingAreCounted) {
  CpuDevice device;
  EXPECT_STREQ(numbers_are("x", numbers({1}, device), {1, 2}).message(),
               "x: 1 numbers, expected 2");
}

}  // namespace
}  // namespace aisc
