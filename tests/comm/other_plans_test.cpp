// The plans that are no defaults, those for short buffers and the broadcast for long ones, as
// default_plans_test.cpp tests the others.
#include <gtest/gtest.h>

#include <bit>

#include "common/comm/plan.h"
#include "tests/comm/plan_runs.h"

namespace aisc::plan_runs {
namespace {

// Every rank does the same: one step, and a message of `n` elements to each other rank.
void expect_one_step(const Ran& ran) {
  const std::int64_t others = ran.p - 1;
  for (const Plan& plan : ran.plans) {
    EXPECT_EQ(traffic_of(plan).elements, others * ran.n);
    EXPECT_EQ(traffic_of(plan).messages, ran.n > 0 ? others : 0);
    EXPECT_LE(plan.steps(), 1u);
  }
  EXPECT_EQ(ran.total.rounds, ran.n > 0 && others > 0 ? 1 : 0);
}
void expect_one_step_and_sums(const Ran& ran) {
  expect_one_step(ran);
  EXPECT_EQ(ran.total.most.added, (ran.p - 1) * ran.n);
}

TEST(DirectAllReduce, SumsOnEveryRankInOneStep) {
  expect_done(CommOp::AllReduce, direct_all_reduce, expect_one_step_and_sums);
}

TEST(DirectAllReduce, AddsInTheOrderOfTheRanks) {
  constexpr int p = 7, n = 1000;
  std::vector<float> expected;
  for (int i = 0; i < n; ++i) {
    float sum = losing_bits(0, i);
    for (int r = 1; r < p; ++r) sum += losing_bits(r, i);
    expected.push_back(sum);
  }
  for (const auto& out : sums_that_lose_bits(direct_all_reduce, p, n)) EXPECT_EQ(out, expected);
}

// A sum of the same two values may differ with the order of the operands: of -0 and +0 the minimum
// is one or the other.
TEST(DirectAllReduce, AddsARanksOwnOnTheRight) {
  const Plan plan = direct_all_reduce(call(CommOp::AllReduce, 4), 1, 3);
  EXPECT_EQ(plan.to_string(),
            "direct all_reduce: 1 steps, scratch 8\n"
            "step  action  peer  piece\n"
            "   0  send       2  out[0, 4)\n"
            "      recv       0  scratch[0, 4)\n"
            "      send       0  out[0, 4)\n"
            "      recv       2  scratch[4, 8)\n"
            "      reduce        scratch[0, 4) <- out[0, 4)\n"
            "      reduce        scratch[0, 4) <- scratch[4, 8)\n"
            "      copy          out[0, 4) <- scratch[0, 4)\n");
}

TEST(DirectReduceScatter, LeavesTheSumOfItsChunkOnEachRankInOneStep) {
  expect_done(CommOp::ReduceScatter, direct_reduce_scatter, expect_one_step_and_sums);
}

TEST(DirectAllGather, GivesEveryRankAllChunksInOneStep) {
  expect_done(CommOp::AllGather, direct_all_gather, [](const Ran& ran) {
    expect_one_step(ran);
    EXPECT_EQ(ran.total.sum.added, 0);
  });
}

TEST(DirectAllToAll, TransposesChunksOverRanksInOneStep) {
  expect_done(CommOp::AllToAll, direct_all_to_all, expect_one_step);
}

TEST(DirectAllToAll, SendsUnequalCountsPackedByRank) {
  for (const int p : kSizes) {
    SCOPED_TRACE(p);
    EXPECT_LE(swap_unequal_counts(direct_all_to_all, p).rounds, 1);
  }
}

TEST(DirectBroadcast, CopiesTheRootInOneStep) {
  expect_done(CommOp::Broadcast, direct_broadcast, [](const Ran& ran) {
    EXPECT_EQ(ran.total.rounds, ran.n > 0 && ran.p > 1 ? 1 : 0);
    EXPECT_EQ(ran.total.sum.elements, ran.n * (ran.p - 1));
    EXPECT_EQ(ran.of(ran.root).elements, ran.n * (ran.p - 1));
  });
}

TEST(RecursiveDoublingAllReduce, SumsOnEveryRankInLogPSteps) {
  expect_done(CommOp::AllReduce, recursive_doubling_all_reduce, [](const Ran& ran) {
    const std::int64_t L = log2_ceil(ran.p), n = ran.n;
    const bool is_power = std::has_single_bit(static_cast<unsigned>(ran.p));
    EXPECT_EQ(ran.total.most.steps, n == 0 ? 0 : is_power ? L : L + 1);
    EXPECT_EQ(ran.total.rounds, ran.total.most.steps);
    EXPECT_EQ(ran.total.most.elements, L * n);
    EXPECT_EQ(ran.total.most.added, L * n);
    // The ranks too many send and receive once; the others swap with each of L' partners.
    const auto q = std::int64_t{std::bit_floor(static_cast<unsigned>(ran.p))};
    EXPECT_EQ(ran.total.sum.elements, (2 * (ran.p - q) + q * log2_ceil(static_cast<int>(q))) * n);
  });
}

TEST(RecursiveDoublingAllReduce, GivesAllRanksTheSameBits) {
  for (const int p : kSizes) {
    SCOPED_TRACE(p);
    const auto outs = sums_that_lose_bits(recursive_doubling_all_reduce, p);
    for (const auto& out : outs) EXPECT_EQ(out, outs[0]);
  }
}

// Ranks 0 to 3 are two pairs; 1, 3, 4 and 5 go on. The sum of the lower block is on the left.
TEST(RecursiveDoublingAllReduce, FoldsTheFirstRanksWherePIsNoPowerOfTwo) {
  const auto text = [](int rank) {
    return recursive_doubling_all_reduce(call(CommOp::AllReduce, 4), rank, 6).to_string();
  };
  EXPECT_EQ(text(2),
            "recursive doubling all_reduce: 2 steps, scratch 0\n"
            "step  action  peer  piece\n"
            "   0  send       3  out[0, 4)\n"
            "   1  recv       3  out[0, 4)\n");
  EXPECT_EQ(text(3),
            "recursive doubling all_reduce: 4 steps, scratch 4\n"
            "step  action  peer  piece\n"
            "   0  recv       2  scratch[0, 4)\n"
            "      reduce        scratch[0, 4) <- out[0, 4)\n"
            "   1  send       1  scratch[0, 4)\n"
            "      recv       1  out[0, 4)\n"
            "      reduce        out[0, 4) <- scratch[0, 4)\n"
            "   2  send       5  out[0, 4)\n"
            "      recv       5  scratch[0, 4)\n"
            "      reduce        out[0, 4) <- scratch[0, 4)\n"
            "   3  send       2  out[0, 4)\n");
}

TEST(ScatterAllGatherBroadcast, CopiesTheRootWhichSendsLessThanTwiceItsBuffer) {
  expect_done(CommOp::Broadcast, scatter_all_gather_broadcast, [](const Ran& ran) {
    const std::int64_t n = ran.n;
    const int p = ran.p;
    EXPECT_EQ(ran.total.sum.elements, n * (p - 1));  // no rank receives anything twice
    const Traffic at_root = ran.of(ran.root);
    EXPECT_EQ(at_root.elements, p == 1 ? 0 : 2 * n - chunk_count(n, 0, p) - chunk_count(n, 1, p));
    if (n < p) return;  // empty chunks are not sent
    EXPECT_EQ(ran.total.most.steps, p == 1 ? 0 : p);
    EXPECT_EQ(ran.total.rounds, ran.total.most.steps);
    EXPECT_EQ(at_root.messages, 2 * (p - 1));
    for (int v = 1; v < p; ++v)
      EXPECT_EQ(ran.of((ran.root + v) % p).elements, v == p - 1 ? 0 : n - chunk_count(n, v + 1, p));
  });
}

}  // namespace
}  // namespace aisc::plan_runs
