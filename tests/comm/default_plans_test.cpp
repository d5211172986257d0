// Plans against hand formulas: what every rank ends with, and how many steps, messages, bytes and
// additions that takes, for powers of two and not, counts that ranks divide and not, every root.
#include "common/comm/plan.h"

#include <gtest/gtest.h>

#include <bitset>

#include "tests/comm/plan_runs.h"

namespace aisc::plan_runs {
namespace {

TEST(RingAllReduce, SumsOnEveryRankAndSendsEachByteTwiceTimesPMinusOneOverP) {
  for_sizes_and_counts([](int p, std::int64_t n) {
    const auto plans = plans_of(ring_all_reduce, call(CommOp::AllReduce, n), p);
    auto memory = each_of(p, [&](int r) { return inout(r, n); });
    const Total total = run(plans, memory);
    expect_outs(memory, [&](int, auto i) { return sum(p, i); });
    for (int r = 0; r < p; ++r) {
      // All chunks twice, but for one in each half.
      const Traffic t = traffic_of(plans[static_cast<std::size_t>(r)]);
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
    EXPECT_EQ(total.sum.elements, 2 * n * (p - 1));
    EXPECT_EQ(total.sum.added, n * (p - 1));
    if (n >= p) {
      EXPECT_EQ(total.rounds, 2 * (p - 1));
    }
    if (n == 0) {
      EXPECT_EQ(total.most.steps, 0);
    }
  });
}

TEST(RingAllReduce, GivesAllRanksTheSameBits) {
  const auto outs = sums_that_lose_bits(ring_all_reduce, 7);
  for (const auto& out : outs) EXPECT_EQ(out, outs[0]);
}

TEST(TreeAllReduce, SumsOnEveryRankInTwoLogPSteps) {
  for_sizes_and_counts([](int p, std::int64_t n) {
    const auto plans = plans_of(tree_all_reduce, call(CommOp::AllReduce, n), p);
    auto memory = each_of(p, [&](int r) { return inout(r, n); });
    const Total total = run(plans, memory);
    expect_outs(memory, [&](int, auto i) { return sum(p, i); });
    const std::int64_t L = n > 0 ? log2_ceil(p) : 0;
    EXPECT_EQ(total.most.steps, 2 * L);
    EXPECT_EQ(total.rounds, 2 * L);
    EXPECT_EQ(total.most.elements, L * n);
    EXPECT_EQ(total.sum.elements, 2 * n * (p - 1));
    EXPECT_EQ(total.sum.added, n * (p - 1));
  });
}

TEST(TreeReduce, SumsOnTheRootInLogPStepsAndEachRankSendsOnce) {
  for_sizes_counts_and_roots([](int p, std::int64_t n, int root) {
    const auto plans = plans_of(tree_reduce, call(CommOp::Reduce, n, root), p);
    for (const bool in_place : {false, true}) {
      auto memory = each_of(p, [&](int r) { return apart(r, n, r == root ? n : 0); });
      Memory& at_root = memory[static_cast<std::size_t>(root)];
      if (in_place) at_root = memory_of(root, {0, n}, {0, n});
      const Total total = run(plans, memory);
      expect_outs(memory, [&](int, auto i) { return sum(p, i); });
      const std::int64_t L = n > 0 && p > 1 ? log2_ceil(p) : 0;
      EXPECT_EQ(total.rounds, L);
      EXPECT_EQ(total.most.steps, p == 1 && n > 0 ? 1 : L);  // alone: a copy
      EXPECT_EQ(total.most.added, L * n);
      EXPECT_EQ(total.sum.added, n * (p - 1));
    }
    for (int r = 0; r < p; ++r) {
      const Traffic t = traffic_of(plans[static_cast<std::size_t>(r)]);
      EXPECT_EQ(t.elements, r == root ? 0 : n);
      EXPECT_EQ(t.messages, r == root || n == 0 ? 0 : 1);
    }
  });
}

TEST(TreeBroadcast, CopiesTheRootInLogPStepsAndTheRootSendsMost) {
  for_sizes_counts_and_roots([](int p, std::int64_t n, int root) {
    const auto plans = plans_of(tree_broadcast, call(CommOp::Broadcast, n, root), p);
    auto memory = each_of(p, [&](int r) { return r == root ? inout(r, n) : apart(r, 0, n); });
    const Total total = run(plans, memory);
    expect_outs(memory, [&](int, auto i) { return value(root, i); });
    const std::int64_t L = n > 0 ? log2_ceil(p) : 0;
    EXPECT_EQ(total.most.steps, L);
    EXPECT_EQ(total.rounds, L);
    EXPECT_EQ(total.most.elements, L * n);
    EXPECT_EQ(traffic_of(plans[static_cast<std::size_t>(root)]).elements, L * n);
    EXPECT_EQ(total.sum.elements, n * (p - 1));
  });
}

// What rings and pairwise exchange of p chunks of c elements have in common.
void expect_p_minus_one_chunks(const std::vector<Plan>& plans, const Total& total, std::int64_t c) {
  const auto others = static_cast<std::int64_t>(plans.size()) - 1;
  for (const Plan& plan : plans) {
    EXPECT_EQ(traffic_of(plan).elements, others * c);
    EXPECT_EQ(traffic_of(plan).messages, c > 0 ? others : 0);
    EXPECT_EQ(traffic_of(plan).steps, c == 0 ? 0 : others == 0 ? 1 : others);  // alone: a copy
  }
  EXPECT_EQ(total.rounds, c > 0 ? others : 0);
}

TEST(RingReduceScatter, LeavesTheSumOfItsChunkOnEachRank) {
  for_sizes_and_counts([](int p, std::int64_t c) {
    const auto plans = plans_of(ring_reduce_scatter, call(CommOp::ReduceScatter, c), p);
    for (const bool in_place : {false, true}) {
      auto memory = each_of(p, [&](int r) {
        return in_place ? memory_of(r, {0, p * c}, {r * c, c}) : apart(r, p * c, c);
      });
      const Total total = run(plans, memory);
      expect_outs(memory, [&](int r, auto i) { return sum(p, r * c + i); });
      expect_p_minus_one_chunks(plans, total, c);
      EXPECT_EQ(total.most.added, (p - 1) * c);
    }
  });
}

TEST(RingAllGather, GivesEveryRankAllChunks) {
  for_sizes_and_counts([](int p, std::int64_t c) {
    const auto plans = plans_of(ring_all_gather, call(CommOp::AllGather, c), p);
    for (const bool in_place : {false, true}) {
      auto memory = each_of(p, [&](int r) {
        return in_place ? memory_of(r, {r * c, c}, {0, p * c}) : apart(r, c, p * c);
      });
      const Total total = run(plans, memory);
      expect_outs(memory, [&](int, auto i) { return value(i / c, i % c); });
      expect_p_minus_one_chunks(plans, total, c);
      EXPECT_EQ(total.sum.added, 0);
    }
  });
}

TEST(DirectGather, BringsAllChunksToTheRootInOneStep) {
  for_sizes_counts_and_roots([](int p, std::int64_t c, int root) {
    const auto plans = plans_of(direct_gather, call(CommOp::Gather, c, root), p);
    for (const bool in_place : {false, true}) {
      auto memory = each_of(p, [&](int r) { return apart(r, c, r == root ? p * c : 0); });
      Memory& at_root = memory[static_cast<std::size_t>(root)];
      if (in_place) at_root = memory_of(root, {root * c, c}, {0, p * c});
      const Total total = run(plans, memory);
      expect_outs(memory, [&](int, auto i) { return value(i / c, i % c); });
      EXPECT_EQ(total.most.steps, c > 0 ? 1 : 0);
    }
    for (int r = 0; r < p; ++r)
      EXPECT_EQ(traffic_of(plans[static_cast<std::size_t>(r)]).elements, r == root ? 0 : c);
  });
}

TEST(DirectScatter, BringsEachRankItsChunkInOneStep) {
  for_sizes_counts_and_roots([](int p, std::int64_t c, int root) {
    const auto plans = plans_of(direct_scatter, call(CommOp::Scatter, c, root), p);
    for (const bool in_place : {false, true}) {
      auto memory = each_of(p, [&](int r) { return apart(r, r == root ? p * c : 0, c); });
      if (in_place)
        memory[static_cast<std::size_t>(root)] = memory_of(root, {0, p * c}, {root * c, c});
      const Total total = run(plans, memory);
      expect_outs(memory, [&](int r, auto i) { return value(root, r * c + i); });
      EXPECT_EQ(total.most.steps, c > 0 ? 1 : 0);
    }
    for (int r = 0; r < p; ++r)
      EXPECT_EQ(traffic_of(plans[static_cast<std::size_t>(r)]).elements,
                r == root ? (p - 1) * c : 0);
  });
}

TEST(PairwiseAllToAll, TransposesChunksOverRanks) {
  for_sizes_and_counts([](int p, std::int64_t c) {
    Collective collective = call(CommOp::AllToAll, c);
    collective.send_counts.assign(static_cast<std::size_t>(p), c);
    collective.recv_counts = collective.send_counts;
    const auto plans = plans_of(pairwise_all_to_all, collective, p);
    auto memory = each_of(p, [&](int r) { return apart(r, p * c, p * c); });
    const Total total = run(plans, memory);
    expect_outs(memory, [&](int r, auto i) { return value(i / c, r * c + i % c); });
    expect_p_minus_one_chunks(plans, total, c);
  });
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
