// The costs of lines, trees and direct plans: each against what the plans themselves say and how
// long they take, exactly; and some against formulas, and numbers worked out by hand.
#include "09_collectives/solution/cost_lines.h"

#include <gtest/gtest.h>

#include <bit>

#include "09_collectives/binomial.h"
#include "09_collectives/broadcast.h"
#include "09_collectives/naive.h"
#include "tests/09_collectives/run_plans.h"

namespace aisc::plan_runs {
namespace {

using exact::kAlpha;
using exact::kBeta;
using exact::kGamma;

struct Case {
  const char* name;
  CommOp op;
  PlanMaker plan;
  Cost (*cost)(int, double, const Network&, const Tuning&);
  Tuning tuning{};
};

Case chain(int segments) {
  return {"chain", CommOp::Broadcast,
          [segments](const Collective& c, int rank, int size) {
            return chain_broadcast(c, rank, size, segments);
          },
          chain_broadcast_cost, Tuning{.segments = segments}};
}

std::vector<Case> cases() {
  return {
      {"naive", CommOp::AllReduce, naive_all_reduce, naive_all_reduce_cost},
      {"ring", CommOp::ReduceScatter, ring_reduce_scatter, ring_reduce_scatter_cost},
      {"ring", CommOp::AllGather, ring_all_gather, ring_all_gather_cost},
      {"tree", CommOp::Reduce, tree_reduce, tree_reduce_cost},
      {"tree", CommOp::AllReduce, tree_all_reduce, tree_all_reduce_cost},
      {"tree", CommOp::Broadcast, tree_broadcast, binomial_broadcast_cost},
      {"scatter, all_gather", CommOp::Broadcast, scatter_all_gather_broadcast,
       scatter_all_gather_broadcast_cost},
      {"pairwise", CommOp::AllToAll, pairwise_all_to_all, pairwise_all_to_all_cost},
      {"dissemination", CommOp::Barrier, dissemination_barrier, dissemination_barrier_cost},
      {"direct", CommOp::AllReduce, direct_all_reduce, direct_all_reduce_cost},
      {"direct", CommOp::ReduceScatter, direct_reduce_scatter, direct_reduce_scatter_cost},
      {"direct", CommOp::AllGather, direct_all_gather, direct_all_gather_cost},
      {"direct", CommOp::AllToAll, direct_all_to_all, direct_all_to_all_cost},
      {"direct", CommOp::Broadcast, direct_broadcast, direct_broadcast_cost},
      {"direct", CommOp::Gather, direct_gather, direct_gather_cost},
      {"direct", CommOp::Scatter, direct_scatter, direct_scatter_cost},
      {"binomial", CommOp::Broadcast, binomial_broadcast, binomial_broadcast_cost},
      {"binomial", CommOp::Scatter, binomial_scatter, binomial_scatter_cost},
      {"binomial", CommOp::Gather, binomial_gather, binomial_gather_cost},
      {"van de Geijn", CommOp::Broadcast, van_de_geijn_broadcast, van_de_geijn_cost},
      chain(1),
      chain(2),
      chain(16),
  };
}

// Where adding takes less than sending, and more.
std::vector<Network> networks(CommOp op) {
  if (op != CommOp::AllReduce && op != CommOp::Reduce && op != CommOp::ReduceScatter)
    return {exact::kFlat};
  Network slow_sums = exact::kFlat;
  slow_sums.reduce_seconds_per_byte = 16 * kBeta;
  return {exact::kFlat, slow_sums};
}
constexpr std::int64_t kChunks[] = {1, 64};  // mostly latency, mostly bytes

std::int64_t bytes_of(std::int64_t elements) { return 4 * elements; }

TEST(CostLines, AreWhatThePlansSayAndTakeFor1To64Ranks) {
  for (const Case& c : cases())
    for (int p = 1; p <= 64; ++p)
      for (const std::int64_t chunk : kChunks) {
        const std::int64_t bytes = bytes_of(16 * p * chunk);
        SCOPED_TRACE(testing::Message() << c.name << " " << name_of(c.op) << ", " << p << " ranks, "
                                        << bytes << " bytes");
        const Collective call = call_of(c.op, p, bytes);
        Traffic most, sum;
        for (int r = 0; r < p; ++r) {
          const Traffic t = traffic_of(c.plan(call, r, p));
          most.steps = std::max(most.steps, t.steps);
          most.messages = std::max(most.messages, t.messages);
          most.elements = std::max(most.elements, t.elements);
          most.added = std::max(most.added, t.added);
          sum.elements += t.elements;
        }
        for (const Network& network : networks(c.op)) {
          const Cost cost = c.cost(p, static_cast<double>(bytes), network, c.tuning);
          EXPECT_EQ(cost.steps, most.steps);
          EXPECT_EQ(cost.messages, most.messages);
          EXPECT_EQ(cost.bytes, bytes_of(most.elements));
          EXPECT_EQ(cost.added_bytes, bytes_of(most.added));
          EXPECT_EQ(cost.total_bytes, bytes_of(sum.elements));
          EXPECT_EQ(cost.seconds, simulated_seconds(c.plan, call, p, network));
        }
      }
}

TEST(CostLines, AreTheSecondsOfTheCommunicatorInVirtualTime) {
  for (const Case& c : cases())
    for (const int p : {1, 2, 3, 7, 13, 32})
      for (const Network& network : networks(c.op)) {
        SCOPED_TRACE(testing::Message() << c.name << " " << name_of(c.op));
        const Collective call = call_of(c.op, p, bytes_of(16 * p));
        EXPECT_EQ(expect_runs_as_planned(c.plan, call, p, network),
                  c.cost(p, static_cast<double>(bytes_of(16 * p)), network, c.tuning).seconds)
            << p << " ranks";
      }
}

// Whole buffers may be of any length: the sum of all messages stays what it is.
TEST(CostLines, OfAllRanksTogetherAreExactForBuffersThatDoNotDivide) {
  for (const Case& c : cases()) {
    if (c.op != CommOp::AllReduce && c.op != CommOp::Broadcast && c.op != CommOp::Reduce) continue;
    for (const int p : {2, 3, 7, 13, 64})
      for (const std::int64_t n : {1, 5, 100, 1001}) {
        const Collective call = call_of(c.op, p, bytes_of(n));
        std::int64_t sum = 0;
        for (int r = 0; r < p; ++r) sum += traffic_of(c.plan(call, r, p)).elements;
        EXPECT_EQ(c.cost(p, static_cast<double>(bytes_of(n)), exact::kFlat, c.tuning).total_bytes,
                  bytes_of(sum))
            << c.name << " " << name_of(c.op) << ", " << p << " ranks, count " << n;
      }
  }
}

double seconds(Cost (*cost)(int, double, const Network&, const Tuning&), int p, double n) {
  return cost(p, n, exact::kFlat, {}).seconds;
}

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
