// Bruck's all_gather and all_to_all, for any number of ranks in ceil(log2 p) steps.
#include "09_collectives/bruck.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/09_collectives/plan_costs.h"
#include "tests/09_collectives/plan_pieces.h"
#include "tests/comm/plan_runs.h"
#include "tests/support/drawn.h"
#include "tests/support/message_of.h"

namespace aisc::plan_runs {
namespace {

using plan_costs::sends_of;

Ran run_all_gather(int p, std::int64_t c) {
  return run_call(CommOp::AllGather, bruck_all_gather, p, c);
}

TEST(BruckAllGather, GivesEveryRankAllChunksInLogPSteps) {
  for_sizes_and_counts([](int p, std::int64_t c) {
    const Total total = run_all_gather(p, c).total;
    EXPECT_EQ(total.most.elements, (p - 1) * c);  // no rank receives anything twice
    EXPECT_EQ(total.sum.elements, p * (p - 1) * c);
    EXPECT_EQ(total.sum.added, 0);
    if (c == 0 || p == 1) return;
    EXPECT_EQ(total.most.messages, log2_ceil(p));
    EXPECT_EQ(total.most.steps, log2_ceil(p));
    EXPECT_EQ(total.rounds, log2_ceil(p));
  });
}

TEST(BruckAllGather, WorksForDrawnSizes) {
  const auto p = static_cast<int>(drawn("ranks of BruckAllGather", 2, 70));
  const std::int64_t c = drawn("elements of BruckAllGather", 1, 300);
  SCOPED_TRACE(testing::Message() << p << " ranks, count " << c);
  run_all_gather(p, c);
}

// In the last step a rank sends only what the other lacks.
TEST(BruckAllGather, DoublesTheDistanceToTheLeft) {
  const auto text = [](int rank, int size) {
    return sends_of(bruck_all_gather(call(CommOp::AllGather, 1), rank, size));
  };
  EXPECT_EQ(text(0, 5), "4: 1 | 3: 2 | 1: 1");
  EXPECT_EQ(text(4, 5), "3: 1 | 2: 2 | 0: 1");
  EXPECT_EQ(text(2, 8), "1: 1 | 0: 2 | 6: 4");
  EXPECT_EQ(text(6, 7), "5: 1 | 4: 2 | 2: 3");
}

TEST(BruckAllGather, DoesNotAskForFarMoreScratchThanItNeeds) {
  for_sizes_and_counts([](int p, std::int64_t c) {
    expect_scratch(bruck_all_gather, call(CommOp::AllGather, c), p, [&](int) { return 2 * p * c; });
  });
}

TEST(BruckAllGather, SendsCountsThatNoIntHolds) {
  EXPECT_EQ(elements_sent(bruck_all_gather, call(CommOp::AllGather, kBeyondInt), 5),
            5 * 4 * kBeyondInt);
}

TEST(BruckAllGather, CountsOnACommunicatorWhatThePlansSay) {
  for (const int p : {1, 2, 3, 6, 8, 13})
    plan_costs::expect_measured(bruck_all_gather, CommOp::AllGather, p, p * 4 * 12, exact::kFlat);
}

// L a + n (p - 1) / p b, on every rank.
TEST(BruckAllGather, TakesTheLatencyOfATreeAndTheBytesOfARingFor2To64Ranks) {
  for (int p = 2; p <= 64; ++p)
    EXPECT_EQ(
        simulate(bruck_all_gather, call_of(CommOp::AllGather, p, p * 4 * 256), p, exact::kFlat)
            .end_seconds,
        std::vector<double>(static_cast<std::size_t>(p),
                            static_cast<double>(log2_ceil(p)) * exact::kAlpha +
                                exact::bytes(256.0 * (p - 1)) * exact::kBeta))
        << p << " ranks";
}

// The chunks that move in the steps of distance 1, 2, 4, ...: those whose number has the bit.
std::int64_t chunks_with_bit(int p, int d) {
  std::int64_t chunks = 0;
  for (int i = 0; i < p; ++i) chunks += (i & d) != 0 ? 1 : 0;
  return chunks;
}
std::int64_t moved_chunks(int p) {
  std::int64_t chunks = 0;
  for (int d = 1; d < p; d *= 2) chunks += chunks_with_bit(p, d);
  return chunks;
}

Total run_all_to_all(int p, std::int64_t c) {
  return run_call(CommOp::AllToAll, bruck_all_to_all, p, c).total;
}

TEST(BruckAllToAll, TransposesChunksOverRanksInLogPMessages) {
  for_sizes_and_counts([](int p, std::int64_t c) {
    const Total total = run_all_to_all(p, c);
    EXPECT_EQ(total.most.elements, moved_chunks(p) * c);
    EXPECT_EQ(total.sum.elements, p * moved_chunks(p) * c);
    EXPECT_EQ(total.sum.added, 0);
    if (c == 0) return;
    EXPECT_EQ(total.most.messages, log2_ceil(p));
    EXPECT_EQ(total.most.steps, 1 + log2_ceil(p));  // the first packs
    EXPECT_EQ(total.rounds, log2_ceil(p));
  });
}

TEST(BruckAllToAll, WorksForDrawnSizes) {
  const auto p = static_cast<int>(drawn("ranks of BruckAllToAll", 2, 70));
  const std::int64_t c = drawn("elements of BruckAllToAll", 1, 100);
  SCOPED_TRACE(testing::Message() << p << " ranks, count " << c);
  run_all_to_all(p, c);
}

TEST(BruckAllToAll, SendsHalfOfTheChunksInEachStepWherePIsAPowerOfTwo) {
  for (const int p : {2, 4, 8, 16, 64})
    EXPECT_EQ(run_all_to_all(p, 10).most.elements, 10 * p / 2 * log2_ceil(p)) << p << " ranks";
}

TEST(BruckAllToAll, DoublesTheDistanceToTheRight) {
  const auto text = [](int rank, int size) {
    return sends_of(bruck_all_to_all(call(CommOp::AllToAll, 10), rank, size));
  };
  EXPECT_EQ(text(0, 8), "1: 40 | 2: 40 | 4: 40");
  EXPECT_EQ(text(7, 8), "0: 40 | 1: 40 | 3: 40");
  EXPECT_EQ(text(0, 6), "1: 30 | 2: 20 | 4: 20");  // chunks 1 3 5, 2 3, 4 5
  EXPECT_EQ(text(5, 6), "0: 30 | 1: 20 | 3: 20");
}

// Three ranks: rank 0 has a0 a1 a2 = 0 1 2, rank 1 has 10 11 12, rank 2 has 20 21 22.
TEST(BruckAllToAll, TransposesByHand) {
  const auto plans = plans_of(bruck_all_to_all, call(CommOp::AllToAll, 1), 3);
  std::vector<Memory> memory;
  for (const std::int64_t a : {0, 10, 20})
    memory.push_back({{a, a + 1, a + 2, kPoison, kPoison, kPoison}, {0, 3}, {3, 3}});
  run(plans, memory);
  expect_outs(memory, [](int r, std::int64_t i) { return 10 * i + r; });
}

// All chunks, and what goes and comes in a step.
TEST(BruckAllToAll, DoesNotAskForFarMoreScratchThanItNeeds) {
  for_sizes_and_counts([](int p, std::int64_t c) {
    expect_scratch(bruck_all_to_all, call(CommOp::AllToAll, c), p, [&](int) { return 4 * p * c; });
  });
}

TEST(BruckAllToAll, SendsCountsThatNoIntHolds) {
  EXPECT_EQ(elements_sent(bruck_all_to_all, call(CommOp::AllToAll, kBeyondInt), 6),
            6 * (3 + 2 + 2) * kBeyondInt);
}

TEST(BruckAllToAll, CountsOnACommunicatorWhatThePlansSay) {
  for (const int p : {1, 2, 3, 6, 8, 13})
    plan_costs::expect_measured(bruck_all_to_all, CommOp::AllToAll, p, p * 4 * 12, exact::kFlat);
}

// L a, and the bytes of every step, on every rank.
TEST(BruckAllToAll, TakesTheTimeOfItsFormulaFor2To64Ranks) {
  for (int p = 2; p <= 64; ++p) {
    const auto chunks = static_cast<double>(moved_chunks(p));
    EXPECT_EQ(simulate(bruck_all_to_all, call_of(CommOp::AllToAll, p, p * 4 * 64), p, exact::kFlat)
                  .end_seconds,
              std::vector<double>(static_cast<std::size_t>(p),
                                  static_cast<double>(log2_ceil(p)) * exact::kAlpha +
                                      exact::bytes(64 * chunks) * exact::kBeta))
        << p << " ranks";
  }
}

TEST(BruckAllToAll, RefusesUnequalCounts) {
  Collective c = call(CommOp::AllToAllV, 0);
  c.send_counts = c.recv_counts = {1, 1};
  EXPECT_THAT(message_of([&] { bruck_all_to_all(c, 0, 2); }), testing::HasSubstr("all_to_all_v"));
}

}  // namespace
}  // namespace aisc::plan_runs
