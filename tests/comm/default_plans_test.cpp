// Plans against hand formulas: what every rank ends with, and how many steps, messages, bytes and
// additions that takes, for powers of two and not, counts that ranks divide and not, every root.
#include "common/comm/plan.h"

#include <gtest/gtest.h>

#include <bitset>
#include <utility>

#include "tests/comm/plan_runs.h"

namespace aisc::plan_runs {
namespace {

TEST(RingAllReduce, SumsOnEveryRankAndSendsEachByteTwiceTimesPMinusOneOverP) {
  expect_done(CommOp::AllReduce, ring_all_reduce, [](const Ran& ran) {
    const auto [p, n] = std::pair(ran.p, ran.n);
    for (int r = 0; r < p; ++r) {
      // All chunks twice, but for one in each half.
      const Traffic t = ran.of(r);
      EXPECT_EQ(t.elements,
                p == 1 ? 0 : 2 * n - chunk_count(n, r + 1, p) - chunk_count(n, r + 2, p));
      EXPECT_EQ(t.added, p == 1 ? 0 : n - chunk_count(n, r, p));
      if (n < p) continue;  // empty chunks are not sent
      EXPECT_EQ(t.steps, 2 * (p - 1));
      EXPECT_EQ(t.messages, 2 * (p - 1));
      if (n % p == 0) {
        EXPECT_EQ(t.elements, 2 * n * (p - 1) / p);
      }
    }
    EXPECT_EQ(ran.total.sum.elements, 2 * n * (p - 1));
    EXPECT_EQ(ran.total.sum.added, n * (p - 1));
    if (n >= p) {
      EXPECT_EQ(ran.total.rounds, 2 * (p - 1));
    }
    if (n == 0) {
      EXPECT_EQ(ran.total.most.steps, 0);
    }
  });
}

TEST(RingAllReduce, GivesAllRanksTheSameBits) {
  const auto outs = sums_that_lose_bits(ring_all_reduce, 7);
  for (const auto& out : outs) EXPECT_EQ(out, outs[0]);
}

// Levels of a tree of p ranks, where there is something to send.
std::int64_t levels(const Ran& ran) { return ran.n > 0 ? log2_ceil(ran.p) : 0; }

TEST(TreeAllReduce, SumsOnEveryRankInTwoLogPSteps) {
  expect_done(CommOp::AllReduce, tree_all_reduce, [](const Ran& ran) {
    const std::int64_t L = levels(ran), others = ran.p - 1;
    EXPECT_EQ(ran.total.most.steps, 2 * L);
    EXPECT_EQ(ran.total.rounds, 2 * L);
    EXPECT_EQ(ran.total.most.elements, L * ran.n);
    EXPECT_EQ(ran.total.sum.elements, 2 * ran.n * others);
    EXPECT_EQ(ran.total.sum.added, ran.n * others);
  });
}

TEST(TreeReduce, SumsOnTheRootInLogPStepsAndEachRankSendsOnce) {
  expect_done(CommOp::Reduce, tree_reduce, [](const Ran& ran) {
    const std::int64_t L = levels(ran);
    EXPECT_EQ(ran.total.rounds, L);
    EXPECT_EQ(ran.total.most.steps, ran.p == 1 && ran.n > 0 ? 1 : L);  // alone: a copy
    EXPECT_EQ(ran.total.most.added, L * ran.n);
    EXPECT_EQ(ran.total.sum.added, ran.n * (ran.p - 1));
    for (int r = 0; r < ran.p; ++r) {
      EXPECT_EQ(ran.of(r).elements, r == ran.root ? 0 : ran.n);
      EXPECT_EQ(ran.of(r).messages, r == ran.root || ran.n == 0 ? 0 : 1);
    }
  });
}

TEST(TreeBroadcast, CopiesTheRootInLogPStepsAndTheRootSendsMost) {
  expect_done(CommOp::Broadcast, tree_broadcast, [](const Ran& ran) {
    const std::int64_t L = levels(ran);
    EXPECT_EQ(ran.total.most.steps, L);
    EXPECT_EQ(ran.total.rounds, L);
    EXPECT_EQ(ran.total.most.elements, L * ran.n);
    EXPECT_EQ(ran.of(ran.root).elements, L * ran.n);
    EXPECT_EQ(ran.total.sum.elements, ran.n * (ran.p - 1));
  });
}

// What rings and pairwise exchange of p chunks of n elements have in common.
void expect_p_minus_one_chunks(const Ran& ran) {
  const std::int64_t others = ran.p - 1;
  for (int r = 0; r < ran.p; ++r) {
    EXPECT_EQ(ran.of(r).elements, others * ran.n);
    EXPECT_EQ(ran.of(r).messages, ran.n > 0 ? others : 0);
    EXPECT_EQ(ran.of(r).steps, ran.n == 0 ? 0 : others == 0 ? 1 : others);  // alone: a copy
  }
  EXPECT_EQ(ran.total.rounds, ran.n > 0 ? others : 0);
}

TEST(RingReduceScatter, LeavesTheSumOfItsChunkOnEachRank) {
  expect_done(CommOp::ReduceScatter, ring_reduce_scatter, [](const Ran& ran) {
    expect_p_minus_one_chunks(ran);
    EXPECT_EQ(ran.total.most.added, (ran.p - 1) * ran.n);
  });
}

TEST(RingAllGather, GivesEveryRankAllChunks) {
  expect_done(CommOp::AllGather, ring_all_gather, [](const Ran& ran) {
    expect_p_minus_one_chunks(ran);
    EXPECT_EQ(ran.total.sum.added, 0);
  });
}

TEST(DirectGather, BringsAllChunksToTheRootInOneStep) {
  expect_done(CommOp::Gather, direct_gather, [](const Ran& ran) {
    EXPECT_EQ(ran.total.most.steps, ran.n > 0 ? 1 : 0);
    for (int r = 0; r < ran.p; ++r) EXPECT_EQ(ran.of(r).elements, r == ran.root ? 0 : ran.n);
  });
}

TEST(DirectScatter, BringsEachRankItsChunkInOneStep) {
  expect_done(CommOp::Scatter, direct_scatter, [](const Ran& ran) {
    EXPECT_EQ(ran.total.most.steps, ran.n > 0 ? 1 : 0);
    for (int r = 0; r < ran.p; ++r)
      EXPECT_EQ(ran.of(r).elements, r == ran.root ? (ran.p - 1) * ran.n : 0);
  });
}

TEST(PairwiseAllToAll, TransposesChunksOverRanks) {
  expect_done(CommOp::AllToAll, pairwise_all_to_all, expect_p_minus_one_chunks);
}

TEST(PairwiseAllToAll, SendsUnequalCountsPackedByRank) {
  for (const int p : kSizes) {
    SCOPED_TRACE(p);
    EXPECT_LE(swap_unequal_counts(pairwise_all_to_all, p).rounds, p - 1);
  }
}

TEST(DisseminationBarrier, LetsEveryRankKnowOfEveryOtherInLogPSteps) {
  for (const int p : kSizes) {
    SCOPED_TRACE(p);
    const auto plans = plans_of(dissemination_barrier, call(CommOp::Barrier, 0), p);
    std::vector<Memory> memory(static_cast<std::size_t>(p));
    const Total total = run(plans, memory);
    const auto L = static_cast<std::size_t>(log2_ceil(p));
    EXPECT_EQ(total.rounds, log2_ceil(p));
    EXPECT_EQ(total.sum.elements, 0);
    EXPECT_EQ(total.sum.messages, p * log2_ceil(p));
    std::vector<std::bitset<64>> knows(static_cast<std::size_t>(p));
    for (std::size_t r = 0; r < plans.size(); ++r) {
      ASSERT_EQ(plans[r].steps(), L);
      knows[r].set(r);
    }
    for (std::size_t s = 0; s < L; ++s) {
      const auto before = knows;
      for (std::size_t r = 0; r < plans.size(); ++r)
        for (const PlanAction& action : plans[r].step(s))
          if (action.kind == PlanAction::Kind::Recv)
            knows[r] |= before[static_cast<std::size_t>(action.peer)];
    }
    for (const auto& known : knows) EXPECT_EQ(known.count(), static_cast<std::size_t>(p));
  }
}

}  // namespace
}  // namespace aisc::plan_runs
