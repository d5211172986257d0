// The same bits for every number of threads, on data where another order of additions has others.
#include "01_mutex_mae/reproducible.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/01_mutex_mae/exact_problem.h"
#include "tests/01_mutex_mae/tree_oracle.h"
#include "tests/01_mutex_mae/watched.h"

namespace aisc {
namespace {

std::vector<double> errors_of(const Problem& problem) {
  std::vector<double> errors;
  for (std::int64_t i = 0; i < problem.N; ++i)
    errors.push_back(static_cast<double>(exact_error(problem, i)));
  return errors;
}

TEST(TreeSum, IsTheSumByHand) {
  for (std::int64_t count = 0; count <= 9; ++count) {
    std::vector<double> values;
    for (std::int64_t k = 1; k <= count; ++k) values.push_back(static_cast<double>(k));
    const std::int64_t sum = count * (count + 1) / 2;
    EXPECT_EQ(exactly(tree_sum(values)), exactly(static_cast<double>(sum)))
        << "1 + 2 + ... + " << count;
  }
}

// 2^53 + 1 is 2^53 in F64, and 1 + 1 is 2: who is added to whom shows.
TEST(TreeSum, AddsNeighbours) {
  const double big = 9007199254740992.0;
  std::vector<double> pairs = {big, 1, 1, 1};
  EXPECT_EQ(tree_sum(pairs) - big, 2) << "(2^53 + 1) + (1 + 1), less 2^53";
  std::vector<double> apart = {1, 1, big, 1};
  EXPECT_EQ(tree_sum(apart) - big, 2) << "(1 + 1) + (2^53 + 1), less 2^53";
  std::vector<double> five = {big, 1, 1, 1, 2};
  EXPECT_EQ(tree_sum(five) - big, 4) << "((2^53 + 1) + (1 + 1)) + 2, less 2^53";
}

TEST(TreeSum, EqualsTheOracleBitByBit) {
  std::vector<std::int64_t> counts = {drawn("values of TreeSum", 100, 1000)};
  for (std::int64_t count = 0; count <= 70; ++count) counts.push_back(count);
  int different = 0;
  for (const std::int64_t count : counts) {
    const std::vector<double> values = errors_of(rough_problem(count));
    std::vector<double> used_up = values;
    const double sum = tree_sum(used_up), oracle = oracle_tree(values, 0, values.size());
    ASSERT_EQ(exactly(sum), exactly(oracle))
        << count << " values, off by " << sum - oracle
        << ": the additions are not in the order that reproducible.h tells";
    different += oracle != left_to_right(values, 0, values.size());
  }
  EXPECT_GE(different, 10) << "the data do not tell orders apart: the test is worth nothing";
}

TEST(MaeReproducible, IsExactOnIntegers) { expect_mean("MaeReproducible", mae_reproducible); }

TEST(MaeReproducible, EqualsTheOracleBitByBit) {
  Team team(3);
  for (const std::int64_t N :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{255}, std::int64_t{256}, std::int64_t{257},
        std::int64_t{511}, std::int64_t{512}, std::int64_t{513}, std::int64_t{1280},
        drawn("samples of MaeReproducible", 1500, 5000)}) {
    const Problem problem = rough_problem(N);
    const double mean = mae_reproducible(problem, team),
                 oracle = oracle_of_reproducible(errors_of(problem));
    ASSERT_EQ(exactly(mean), exactly(oracle))
        << N << " samples, off by " << mean - oracle
        << ": the additions are not in the order that reproducible.h tells";
  }
}

// On rough data: errors of a model have 24 bits and one size, and sums of some thousands of them in
// F64, which has 53, are exact in any order.
TEST(MaeReproducible, IsBitwiseEqualForEveryTeam) {
  const Problem problem = rough_problem(drawn("samples of MaeReproducible", 1500, 5000));
  Team alone(1);
  const double one = mae_reproducible(problem, alone);
  for (int T = 1; T <= 9; ++T) {
    Team team(T);
    for (int again = 0; again < 5; ++again) {
      const double mean = mae_reproducible(problem, team);
      ASSERT_EQ(exactly(mean), exactly(one))
          << T << " threads, call " << again << ": off by " << mean - one << " from one thread";
    }
  }
}

// Whoever computes which leaf: each sample once, and no thread idle that could have one.
TEST(MaeReproducible, ThreadsComputeTheirLeavesAtOnce) {
  for (const int T : {1, 2, 5}) {
    Team team(T);
    for (const std::int64_t leaves : {1, T - 1, T, T + 1, 2 * T + 1}) {
      const std::int64_t N =
          std::max<std::int64_t>(0, kLeaf * leaves - 100);  // the last is shorter
      Problem problem = integer_problem(N, 1);
      const Watched watched(problem, static_cast<int>(std::min<std::int64_t>(leaves, T)),
                            number_in(team));
      mae_reproducible(problem, team);
      watched.expect_each_once(T);
      ASSERT_FALSE(HasFailure()) << leaves << " leaves, " << T << " threads";
    }
  }
}

}  // namespace
}  // namespace aisc
