// The problem that is given: what its errors are, and that it is the same wherever it is made.
#include "01_mutex_mae/problem.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/message_of.h"

namespace aisc {
namespace {

TEST(Problem, ErrorIsTheDistanceOfThePredictionFromTheTarget) {
  Problem problem{.N = 2, .M = 2, .x = {1, 2, 3, 4}, .y = {0, 100}, .w = {10, 1}, .b = 5};
  EXPECT_EQ(error_of(problem, 0), 17);  // 10 + 2 + 5 - 0
  EXPECT_EQ(error_of(problem, 1), 61);  // |30 + 4 + 5 - 100|
}

TEST(Problem, WatchIsCalledWithTheSample) {
  Problem problem{.N = 3, .M = 0, .y = {1, 2, 3}};
  std::vector<std::int64_t> asked;
  problem.watch = [&](std::int64_t i) { asked.push_back(i); };
  EXPECT_EQ(error_of(problem, 2), 3);
  EXPECT_EQ(error_of(problem, 0), 1);
  EXPECT_EQ(asked, (std::vector<std::int64_t>{2, 0}));
}

TEST(Problem, MeanOfNoErrorsIsZero) {
  EXPECT_EQ(mean_error(6, 4), 1.5);
  EXPECT_EQ(mean_error(0, 0), 0);
}

TEST(Problem, IsAFunctionOfItsSeed) {
  const Problem one = make_problem(50, 3, 7), same = make_problem(50, 3, 7);
  EXPECT_EQ(one.x, same.x);
  EXPECT_EQ(one.y, same.y);
  EXPECT_EQ(one.w, same.w);
  EXPECT_EQ(one.b, same.b);
  const Problem other = make_problem(50, 3, 8);
  EXPECT_NE(one.x, other.x);
  EXPECT_NE(one.w, other.w);
}

TEST(Problem, AShorterOneIsTheBeginningOfALonger) {
  const Problem longer = make_problem(50, 3), shorter = make_problem(20, 3);
  ASSERT_EQ(longer.x.size(), 150u);
  ASSERT_EQ(shorter.x.size(), 60u);
  EXPECT_EQ(std::vector<float>(longer.x.begin(), longer.x.begin() + 60), shorter.x);
  EXPECT_EQ(std::vector<float>(longer.y.begin(), longer.y.begin() + 20), shorter.y);
  EXPECT_EQ(longer.w, shorter.w);
}

// The mean of N sizes of Laplace noise is 1, give or take 1 / sqrt(N); this is four times that.
TEST(Problem, NoiseIsOfMeanSizeOne) {
  constexpr std::int64_t kSamples = 40'000;
  constexpr double kFourDeviations = 0.02;
  const Problem problem = make_problem(kSamples, 0);
  double sum = 0;
  for (std::int64_t i = 0; i < kSamples; ++i) sum += error_of(problem, i);
  EXPECT_NEAR(sum / kSamples, 1, kFourDeviations);
}

TEST(Problem, WeightsAreNotThoseThatMadeTheTargets) {
  const Problem problem = make_problem(2000, 64);
  double sum = 0;
  for (std::int64_t i = 0; i < problem.N; ++i) sum += error_of(problem, i);
  EXPECT_GT(sum / 2000, 1.1);  // noise alone is 1
}

TEST(Problem, NegativeSizesAreRefused) {
  EXPECT_EQ(message_of([] { make_problem(-1, 2); }),
            "make_problem: N -1 and M 2 must not be negative");
  EXPECT_EQ(message_of([] { make_problem(1, -2); }),
            "make_problem: N 1 and M -2 must not be negative");
}

}  // namespace
}  // namespace aisc
