// The costs of lines and trees against closed forms, and numbers worked out by hand. menu_test.cpp
// has all of them against the plans themselves.
#include "09_collectives/solution/cost_formulas.h"

#include <gtest/gtest.h>

#include <bit>

#include "09_collectives/binomial.h"
#include "tests/09_collectives/plan_costs.h"
#include "tests/09_collectives/run_plans.h"

namespace aisc::plan_runs {
namespace {

using exact::kAlpha;
using exact::kBeta;
using exact::kGamma;

using plan_costs::counted;

TEST(CostLines, ABinomialBroadcastCostsWhatCommonsTreeDoes) {
  for (int p = 1; p <= 64; ++p)
    for (const int bytes : {4, 4096})
      plan_costs::expect_equal(binomial_broadcast_cost(p, bytes, exact::kFlat, {}),
                               counted(tree_broadcast, CommOp::Broadcast, p, bytes, exact::kFlat));
}

double seconds(CostFormula cost, int p, double n) { return cost(p, n, exact::kFlat, {}).seconds; }

TEST(CostLines, TreesTakeTheirClosedFormsForPowersOfTwoAndNoMoreForOthers) {
  for (int p = 1; p <= 4096; ++p)
    for (const double chunk : {4., 4096.}) {
      const double n = p * chunk, L = std::bit_width(static_cast<unsigned>(p - 1));
      const double reduce = L * (kAlpha + n * (kBeta + kGamma));
      const double gather = L * kAlpha + (n - chunk) * kBeta;
      const bool is_power = std::has_single_bit(static_cast<unsigned>(p));
      EXPECT_LE(seconds(tree_reduce_cost, p, n), reduce) << p;
      EXPECT_LE(seconds(binomial_gather_cost, p, n), gather) << p;
      if (!is_power) continue;
      EXPECT_EQ(seconds(tree_reduce_cost, p, n), reduce) << p;
      EXPECT_EQ(seconds(tree_all_reduce_cost, p, n), reduce + L * (kAlpha + n * kBeta)) << p;
      EXPECT_EQ(seconds(binomial_gather_cost, p, n), gather) << p;
      EXPECT_EQ(seconds(binomial_scatter_cost, p, n), gather) << p;
    }
}

// 3 ranks: both messages are sent at 0. 1 is there after a + n b, and while the root adds it 2's
// comes. 6 ranks: 0 gets 1's, then 2's, which has waited for 3's; 4 has added 5's after a + n (b +
// g) and is there before 2's sum is, so that only n b are left.
TEST(CostLines, ReduceWorkedOutByHand) {
  const double n = 1024, a = kAlpha, b = n * kBeta, g = n * kGamma;
  EXPECT_EQ(seconds(tree_reduce_cost, 2, n), a + b + g);
  EXPECT_EQ(seconds(tree_reduce_cost, 3, n), a + 2 * b + g);
  EXPECT_EQ(seconds(tree_reduce_cost, 4, n), 2 * (a + b + g));
  EXPECT_EQ(seconds(tree_reduce_cost, 6, n), 2 * (a + b + g) + b);
}

// 5 ranks: 4 sends its chunk at 0; the root has those of 1, 2 and 3 after 2 a + 3 b. 7 ranks: 4 has
// the chunks of 5 and 6 after a + 2 b; before all of 2's are there, the first bytes of 4's are.
TEST(CostLines, GatherWorkedOutByHand) {
  const double n = 1024, a = kAlpha;
  EXPECT_EQ(seconds(binomial_gather_cost, 3, 3 * n), a + 2 * n * kBeta);
  EXPECT_EQ(seconds(binomial_gather_cost, 5, 5 * n), 2 * a + 4 * n * kBeta);
  EXPECT_EQ(seconds(binomial_gather_cost, 7, 7 * n), 2 * a + 6 * n * kBeta);
}

TEST(CostLines, AreExactForTensOfThousandsOfRanks) {
  const int p = 24'576;
  const double n = 4. * p;
  EXPECT_EQ(binomial_broadcast_cost(p, n, exact::kFlat, {}).steps, 15);
  EXPECT_EQ(ring_all_gather_cost(p, n, exact::kFlat, {}).steps, 24'575);
  EXPECT_EQ(seconds(tree_reduce_cost, p, n),
            simulated_seconds(tree_reduce, call_of(CommOp::Reduce, p, 4 * p), p));
  EXPECT_EQ(seconds(binomial_gather_cost, p, n),
            simulated_seconds(binomial_gather, call_of(CommOp::Gather, p, 4 * p), p));
}

}  // namespace
}  // namespace aisc::plan_runs
