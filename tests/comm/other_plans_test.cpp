// The plans that are no defaults, those for short buffers and the broadcast for long ones, as
// default_plans_test.cpp tests the others.
#include <gtest/gtest.h>

#include <bit>

#include "common/comm/plan.h"
#include "tests/comm/plan_runs.h"

namespace aisc::plan_runs {
namespace {

// Every rank does the same: one step, and a message of `chunk` elements to each other rank.
void expect_one_step(const std::vector<Plan>& plans, const Total& total, std::int64_t chunk) {
  const auto others = static_cast<std::int64_t>(plans.size()) - 1;
  for (const Plan& plan : plans) {
    EXPECT_EQ(traffic_of(plan).elements, others * chunk);
    EXPECT_EQ(traffic_of(plan).messages, chunk > 0 ? others : 0);
    EXPECT_LE(plan.steps(), 1u);
  }
  EXPECT_EQ(total.rounds, chunk > 0 && others > 0 ? 1 : 0);
}

TEST(DirectAllReduce, SumsOnEveryRankInOneStep) {
  for_sizes_and_counts([](int p, std::int64_t n) {
    const auto plans = plans_of(direct_all_reduce, call(CommOp::AllReduce, n), p);
    auto memory = each_of(p, [&](int r) { return inout(r, n); });
    const Total total = run(plans, memory);
    expect_outs(memory, [&](int, auto i) { return sum(p, i); });
    expect_one_step(plans, total, n);
    EXPECT_EQ(total.most.added, (p - 1) * n);
  });
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
  for_sizes_and_counts([](int p, std::int64_t c) {
    const auto plans = plans_of(direct_reduce_scatter, call(CommOp::ReduceScatter, c), p);
    for (const bool in_place : {false, true}) {
      auto memory = each_of(p, [&](int r) {
        return in_place ? memory_of(r, {0, p * c}, {r * c, c}) : apart(r, p * c, c);
      });
      const Total total = run(plans, memory);
      expect_outs(memory, [&](int r, auto i) { return sum(p, r * c + i); });
      expect_one_step(plans, total, c);
      EXPECT_EQ(total.most.added, (p - 1) * c);
    }
  });
}

TEST(DirectAllGather, GivesEveryRankAllChunksInOneStep) {
  for_sizes_and_counts([](int p, std::int64_t c) {
    const auto plans = plans_of(direct_all_gather, call(CommOp::AllGather, c), p);
    for (const bool in_place : {false, true}) {
      auto memory = each_of(p, [&](int r) {
        return in_place ? memory_of(r, {r * c, c}, {0, p * c}) : apart(r, c, p * c);
      });
      const Total total = run(plans, memory);
      expect_outs(memory, [&](int, auto i) { return value(i / c, i % c); });
      expect_one_step(plans, total, c);
      EXPECT_EQ(total.sum.added, 0);
    }
  });
}

TEST(DirectAllToAll, TransposesChunksOverRanksInOneStep) {
  for_sizes_and_counts([](int p, std::int64_t c) {
    Collective collective = call(CommOp::AllToAll, c);
    collective.send_counts.assign(static_cast<std::size_t>(p), c);
    collective.recv_counts = collective.send_counts;
    const auto plans = plans_of(direct_all_to_all, collective, p);
    auto memory = each_of(p, [&](int r) { return apart(r, p * c, p * c); });
    const Total total = run(plans, memory);
    expect_outs(memory, [&](int r, auto i) { return value(i / c, r * c + i % c); });
    expect_one_step(plans, total, c);
  });
}

TEST(DirectAllToAll, SendsUnequalCountsPackedByRank) {
  for (const int p : kSizes) {
    SCOPED_TRACE(p);
    EXPECT_LE(swap_unequal_counts(direct_all_to_all, p).rounds, 1);
  }
}

TEST(DirectBroadcast, CopiesTheRootInOneStep) {
  for_sizes_counts_and_roots([](int p, std::int64_t n, int root) {
    const auto plans = plans_of(direct_broadcast, call(CommOp::Broadcast, n, root), p);
    auto memory = each_of(p, [&](int r) { return r == root ? inout(r, n) : apart(r, 0, n); });
    const Total total = run(plans, memory);
    expect_outs(memory, [&](int, auto i) { return value(root, i); });
    EXPECT_EQ(total.rounds, n > 0 && p > 1 ? 1 : 0);
    EXPECT_EQ(total.sum.elements, n * (p - 1));
    EXPECT_EQ(traffic_of(plans[static_cast<std::size_t>(root)]).elements, n * (p - 1));
  });
}

TEST(RecursiveDoublingAllReduce, SumsOnEveryRankInLogPSteps) {
  for_sizes_and_counts([](int p, std::int64_t n) {
    const auto plans = plans_of(recursive_doubling_all_reduce, call(CommOp::AllReduce, n), p);
    auto memory = each_of(p, [&](int r) { return inout(r, n); });
    const Total total = run(plans, memory);
    expect_outs(memory, [&](int, auto i) { return sum(p, i); });
    const bool is_power = std::has_single_bit(static_cast<unsigned>(p));
    const std::int64_t L = log2_ceil(p);
    EXPECT_EQ(total.most.steps, n == 0 ? 0 : is_power ? L : L + 1);
    EXPECT_EQ(total.rounds, total.most.steps);
    EXPECT_EQ(total.most.elements, L * n);
    EXPECT_EQ(total.most.added, L * n);
    // The ranks too many send and receive once; the others swap with each of L' partners.
    const auto q = std::int64_t{std::bit_floor(static_cast<unsigned>(p))};
    EXPECT_EQ(total.sum.elements, (2 * (p - q) + q * log2_ceil(static_cast<int>(q))) * n);
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
  for_sizes_counts_and_roots([](int p, std::int64_t n, int root) {
    const auto plans = plans_of(scatter_all_gather_broadcast, call(CommOp::Broadcast, n, root), p);
    auto memory = each_of(p, [&](int r) { return r == root ? inout(r, n) : apart(r, 0, n); });
    const Total total = run(plans, memory);
    expect_outs(memory, [&](int, auto i) { return value(root, i); });
    EXPECT_EQ(total.sum.elements, n * (p - 1));  // no rank receives anything twice
    const Traffic at_root = traffic_of(plans[static_cast<std::size_t>(root)]);
    EXPECT_EQ(at_root.elements, p == 1 ? 0 : 2 * n - chunk_count(n, 0, p) - chunk_count(n, 1, p));
    if (n < p) return;  // empty chunks are not sent
    EXPECT_EQ(total.most.steps, p == 1 ? 0 : p);
    EXPECT_EQ(total.rounds, total.most.steps);
    EXPECT_EQ(at_root.messages, 2 * (p - 1));
    for (int v = 1; v < p; ++v) {
      const Traffic t = traffic_of(plans[static_cast<std::size_t>((root + v) % p)]);
      EXPECT_EQ(t.elements, v == p - 1 ? 0 : n - chunk_count(n, v + 1, p));
    }
  });
}

}  // namespace
}  // namespace aisc::plan_runs
