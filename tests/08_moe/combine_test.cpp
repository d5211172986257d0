// Tokens to experts' rows and back.
#include "08_moe/dispatch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/gradient_check.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

using ::testing::ElementsAre;

// Three tokens of two choices among three experts; the second one of token 1 found no room.
struct ThreeTokens {
  Dispatch plan = dispatch_of(device, std::vector<std::int32_t>{2, 0, 0, 1, 2, 1},
                              std::vector<std::uint8_t>{1, 1, 1, 0, 1, 1}, 2, 3);
  static CpuDevice device;
};
CpuDevice ThreeTokens::device;

TEST(CombineGiven, DispatchSortsByExpertAndThenByToken) {
  const ThreeTokens three;
  EXPECT_THAT(three.plan.counts, ElementsAre(2, 1, 2));
  EXPECT_THAT(to_doubles(three.plan.rows), ElementsAre(0, 1, 2, 0, 2));
  EXPECT_THAT(to_doubles(three.plan.choices), ElementsAre(1, 2, 5, 0, 4));
}

TEST(CombineGiven, EvenDispatchIsAsLargeEverywhere) {
  EXPECT_THAT(even_dispatch(ThreeTokens::device, 10, 4).counts, ElementsAre(2, 3, 2, 3));
}

TEST(CombineGiven, RowsComeInTheOrderOfTheDispatch) {
  const ThreeTokens three;
  const Tensor x = from_doubles({1, 2, 3}, {3, 1}, DType::F64, ThreeTokens::device);
  EXPECT_THAT(to_doubles(dispatched(x, three.plan)), ElementsAre(1, 2, 3, 1, 3));
  const Tensor d = from_doubles({1, 10, 100, 1000, 10000}, {5, 1}, DType::F64, ThreeTokens::device);
  EXPECT_THAT(to_doubles(dispatched_backward(d, three.plan, 3)), ElementsAre(1001, 10, 10100));
}

// Answers 1, 10, 100, 1000, 10000; gates by token .5 .25, 2 3, 4 5: token 0 has .25 * 1 + .5 *
// 1000.
TEST(Combine, IsTheSumOfAnswersTimesGates) {
  const ThreeTokens three;
  const Tensor answers =
      from_doubles({1, 10, 100, 1000, 10000}, {5, 1}, DType::F64, ThreeTokens::device);
  const Tensor gates = from_doubles({.5, .25, 2, 3, 4, 5}, {3, 2}, DType::F64, ThreeTokens::device);
  EXPECT_THAT(to_doubles(combined(answers, gates, three.plan, 3)), ElementsAre(500.25, 20, 40500))
      << "each token is the sum of its experts' answers times their gates";
}

TEST(Combine, GivesNothingToATokenThatFoundNoRoom) {
  const Dispatch plan = dispatch_of(ThreeTokens::device, std::vector<std::int32_t>{0, 0},
                                    std::vector<std::uint8_t>{1, 0}, 1, 2);
  const Tensor answers = from_doubles({7, 8}, {1, 2}, DType::F64, ThreeTokens::device);
  const Tensor gates = from_doubles({.5, .5}, {2, 1}, DType::F64, ThreeTokens::device);
  EXPECT_THAT(to_doubles(combined(answers, gates, plan, 2)), ElementsAre(3.5, 4, 0, 0));
}

TEST(Combine, ItsGradientsAreSlopes) {
  const ThreeTokens three;
  const Tensor answers = random_tensor({5, 4}, DType::F64, ThreeTokens::device, "answers"),
               gates = random_tensor({3, 2}, DType::F64, ThreeTokens::device, "gates"),
               dy = random_tensor({3, 4}, DType::F64, ThreeTokens::device, "dy");
  const auto loss = [&] { return dot(combined(answers, gates, three.plan, 3), dy); };
  const CombineGrads grads = combined_backward(dy, answers, gates, three.plan);
  EXPECT_TRUE(check_gradient(loss, answers, grads.danswers));
  EXPECT_TRUE(check_gradient(loss, gates, grads.dgates));
  EXPECT_EQ(to_doubles(grads.dgates)[3], 0) << "of what was dropped";
}

// Gates are F32 beside answers of BF16.
TEST(Combine, GatesMayBeLongerThanAnswers) {
  const ThreeTokens three;
  const Tensor answers = from_doubles({1, 2, 4, 8, 16}, {5, 1}, DType::BF16, ThreeTokens::device);
  const Tensor gates = from_doubles({.5, .25, 2, 3, 4, 5}, {3, 2}, DType::F32, ThreeTokens::device);
  const Tensor y = combined(answers, gates, three.plan, 3);
  EXPECT_EQ(y.dtype(), DType::BF16);
  EXPECT_THAT(to_doubles(y), ElementsAre(4.25, 4, 84));
  const CombineGrads grads = combined_backward(answers.rows(0, 3), answers, gates, three.plan);
  EXPECT_EQ(grads.dgates.dtype(), DType::F32);
}

}  // namespace
}  // namespace aisc
