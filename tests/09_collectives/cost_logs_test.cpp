// The formulas of cost_logs.cpp against the plans, counted and in simulated time, for every number
// of ranks up to 64. Those that cost an exercise's plan are tests of that exercise.
#include "09_collectives/solution/cost_formulas.h"

#include <gtest/gtest.h>

#include <numeric>

#include "09_collectives/bruck.h"
#include "09_collectives/halving.h"
#include "09_collectives/two_level.h"
#include "tests/09_collectives/plan_costs.h"
#include "tests/support/message_of.h"

namespace aisc::plan_costs {
namespace {

// For p ranks, buffers that divide by p, q and the ranks per node.
void expect_formula(CostFormula formula, const PlanMaker& maker, CommOp op,
                    const Tuning& tuning = {},
                    const std::vector<Network>& networks = flat_networks()) {
  for (const Network& network : networks)
    for (int p = 1; p <= 64; ++p) {
      const int g = tuning.ranks_per_node, nodes = (p + g - 1) / g;
      const std::int64_t bytes = 4 * 64 * std::lcm(p, g * nodes);
      SCOPED_TRACE(testing::Message() << p << " ranks, " << bytes << " bytes, nodes of " << g
                                      << ", " << text_of(network));
      expect_equal(counted(maker, op, p, bytes, network),
                   formula(p, static_cast<double>(bytes), network, tuning));
      if (testing::Test::HasFailure()) return;
    }
}

TEST(RecursiveHalving, CostsWhatItsFormulaSaysFor1To64Ranks) {
  expect_formula(recursive_halving_cost, recursive_halving_reduce_scatter, CommOp::ReduceScatter);
}

TEST(RecursiveDoublingAllGather, CostsWhatItsFormulaSaysFor1To64Ranks) {
  expect_formula(recursive_doubling_all_gather_cost, recursive_doubling_all_gather,
                 CommOp::AllGather);
}

TEST(BruckAllGather, CostsWhatItsFormulaSaysFor1To64Ranks) {
  expect_formula(bruck_all_gather_cost, bruck_all_gather, CommOp::AllGather);
}

TEST(BruckAllToAll, CostsWhatItsFormulaSaysFor1To64Ranks) {
  expect_formula(bruck_all_to_all_cost, bruck_all_to_all, CommOp::AllToAll);
}

PlanMaker two_level(int ranks_per_node) {
  return [ranks_per_node](const Collective& c, int rank, int size) {
    return two_level_all_reduce(c, rank, size, ranks_per_node);
  };
}

// Most numbers of ranks leave the last node with fewer.
TEST(TwoLevelAllReduce, CostsWhatItsFormulaSaysFor1To64Ranks) {
  for (const int g : {1, 2, 4, 16})
    expect_formula(two_level_cost, two_level(g), CommOp::AllReduce, {.ranks_per_node = g},
                   {exact::kFlat});
  for (const int g : {3, 5})
    expect_formula(two_level_cost, two_level(g), CommOp::AllReduce, {.ranks_per_node = g});
}

TEST(CostLogs, RefusesNodesWithoutRanks) {
  EXPECT_EQ(message_of([] { two_level_cost(4, 64, exact::kFlat, {.ranks_per_node = 0}); }),
            "cost of two_level: ranks_per_node 0, at least 1 expected");
}

}  // namespace
}  // namespace aisc::plan_costs
