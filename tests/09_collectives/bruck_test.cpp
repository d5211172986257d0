// Bruck's all_gather and all_to_all, for any number of ranks in ceil(log2 p) steps.
#include "09_collectives/bruck.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "tests/09_collectives/plan_pieces.h"
#include "tests/09_collectives/run_plans.h"

namespace aisc::plan_runs {
namespace {

TEST(BruckAllGather, GivesEveryRankAllChunksInLogPSteps) {
  const auto gather = [](int p, std::int64_t c, int = 0) {
    const Total total = run_call(CommOp::AllGather, bruck_all_gather, p, c).total;
    EXPECT_EQ(total.most.elements, (p - 1) * c)
        << "elements sent by the rank that sends most";  // no rank receives anything twice
    EXPECT_EQ(total.sum.elements, p * (p - 1) * c) << "elements that all ranks send together";
    EXPECT_EQ(total.sum.added, 0) << "elements that all ranks add together";
    if (c == 0 || p == 1) return;
    EXPECT_EQ(total.most.messages, log2_ceil(p)) << "messages of the rank that sends most";
    EXPECT_EQ(total.most.steps, log2_ceil(p)) << "steps of the rank that has most";
    EXPECT_EQ(total.rounds, log2_ceil(p)) << "steps until the last rank is done";
  };
  for_sizes_and_counts(gather);
  for_drawn_sizes("BruckAllGather", 70, 300, gather);
}

// In the last step a rank sends only what the other lacks.
TEST(BruckAllGather, DoublesTheDistanceToTheLeft) {
  const auto text = [](int rank, int size) {
    return sends_of(bruck_all_gather(call(CommOp::AllGather, 1), rank, size));
  };
  EXPECT_EQ(text(0, 5), "4: 1 | 3: 2 | 1: 1")
      << "rank 0 of 5: what it sends, step by step (to whom: elements)";
  EXPECT_EQ(text(4, 5), "3: 1 | 2: 2 | 0: 1")
      << "rank 4 of 5: what it sends, step by step (to whom: elements)";
  EXPECT_EQ(text(2, 8), "1: 1 | 0: 2 | 6: 4")
      << "rank 2 of 8: what it sends, step by step (to whom: elements)";
  EXPECT_EQ(text(6, 7), "5: 1 | 4: 2 | 2: 3")
      << "rank 6 of 7: what it sends, step by step (to whom: elements)";
}

TEST(BruckAllGather, DoesNotAskForFarMoreScratchThanItNeeds) {
  for_sizes_and_counts([](int p, std::int64_t c) {
    expect_scratch(bruck_all_gather, call(CommOp::AllGather, c), p, [&](int) { return 2 * p * c; });
  });
}

TEST(BruckAllGather, SendsCountsThatNoIntHolds) {
  EXPECT_EQ(elements_sent(bruck_all_gather, call(CommOp::AllGather, kBeyondInt), 5),
            5 * 4 * kBeyondInt)
      << "elements that all ranks send, more than an int holds";
}

TEST(BruckAllGather, CountsOnACommunicatorWhatThePlansSay) {
  for (const int p : {1, 2, 3, 6, 8, 13})
    expect_runs_as_planned(bruck_all_gather, call(CommOp::AllGather, 12), p);
}

// L a + n (p - 1) / p b, on every rank.
TEST(BruckAllGather, TakesTheLatencyOfATreeAndTheBytesOfARingFor2To64Ranks) {
  for (int p = 2; p <= 64; ++p)
    expect_all_end(bruck_all_gather, CommOp::AllGather, p, p * 4 * 256,
                   static_cast<double>(log2_ceil(p)) * exact::kAlpha +
                       exact::bytes(256.0 * (p - 1)) * exact::kBeta);
}

// The chunks that move in the steps of distance 1, 2, 4, ...: those whose number has the bit.
std::int64_t moved_chunks(int p) {
  std::int64_t chunks = 0;
  for (unsigned i = 0; i < static_cast<unsigned>(p); ++i) chunks += std::popcount(i);
  return chunks;
}

Total run_all_to_all(int p, std::int64_t c) {
  return run_call(CommOp::AllToAll, bruck_all_to_all, p, c).total;
}

TEST(BruckAllToAll, TransposesChunksOverRanksInLogPMessages) {
  const auto transpose = [](int p, std::int64_t c, int = 0) {
    const Total total = run_all_to_all(p, c);
    EXPECT_EQ(total.most.elements, moved_chunks(p) * c)
        << "elements sent by the rank that sends most";
    EXPECT_EQ(total.sum.elements, p * moved_chunks(p) * c)
        << "elements that all ranks send together";
    EXPECT_EQ(total.sum.added, 0) << "elements that all ranks add together";
    if (c == 0) return;
    EXPECT_EQ(total.most.messages, log2_ceil(p)) << "messages of the rank that sends most";
    EXPECT_EQ(total.most.steps, 1 + log2_ceil(p))
        << "steps of the rank that has most";  // the first packs
    EXPECT_EQ(total.rounds, log2_ceil(p)) << "steps until the last rank is done";
  };
  for_sizes_and_counts(transpose);
  for_drawn_sizes("BruckAllToAll", 70, 100, transpose);
}

TEST(BruckAllToAll, SendsHalfOfTheChunksInEachStepWherePIsAPowerOfTwo) {
  for (const int p : {2, 4, 8, 16, 64})
    EXPECT_EQ(run_all_to_all(p, 10).most.elements, 10 * p / 2 * log2_ceil(p)) << p << " ranks";
}

TEST(BruckAllToAll, DoublesTheDistanceToTheRight) {
  const auto text = [](int rank, int size) {
    return sends_of(bruck_all_to_all(call(CommOp::AllToAll, 10), rank, size));
  };
  EXPECT_EQ(text(0, 8), "1: 40 | 2: 40 | 4: 40")
      << "rank 0 of 8: what it sends, step by step (to whom: elements)";
  EXPECT_EQ(text(7, 8), "0: 40 | 1: 40 | 3: 40")
      << "rank 7 of 8: what it sends, step by step (to whom: elements)";
  EXPECT_EQ(text(0, 6), "1: 30 | 2: 20 | 4: 20")
      << "rank 0 of 6: what it sends, step by step (to whom: elements)";  // chunks 1 3 5, 2 3, 4 5
  EXPECT_EQ(text(5, 6), "0: 30 | 1: 20 | 3: 20")
      << "rank 5 of 6: what it sends, step by step (to whom: elements)";
}

// Rank 0 has a0 a1 a2 = 0 1 2, rank 1 has 10 11 12, rank 2 has 20 21 22.
TEST(BruckAllToAll, TransposesByHand) { expect_transposes_by_hand(bruck_all_to_all, 3); }

// All chunks, and what goes and comes in a step.
TEST(BruckAllToAll, DoesNotAskForFarMoreScratchThanItNeeds) {
  for_sizes_and_counts([](int p, std::int64_t c) {
    expect_scratch(bruck_all_to_all, call(CommOp::AllToAll, c), p, [&](int) { return 4 * p * c; });
  });
}

TEST(BruckAllToAll, SendsCountsThatNoIntHolds) {
  EXPECT_EQ(elements_sent(bruck_all_to_all, call(CommOp::AllToAll, kBeyondInt), 6),
            6 * (3 + 2 + 2) * kBeyondInt)
      << "elements that all ranks send, more than an int holds";
}

TEST(BruckAllToAll, CountsOnACommunicatorWhatThePlansSay) {
  for (const int p : {1, 2, 3, 6, 8, 13})
    expect_runs_as_planned(bruck_all_to_all, call(CommOp::AllToAll, 12), p);
}

// L a, and the bytes of every step, on every rank.
TEST(BruckAllToAll, TakesTheTimeOfItsFormulaFor2To64Ranks) {
  for (int p = 2; p <= 64; ++p)
    expect_all_end(bruck_all_to_all, CommOp::AllToAll, p, p * 4 * 64,
                   static_cast<double>(log2_ceil(p)) * exact::kAlpha +
                       exact::bytes(64.0 * static_cast<double>(moved_chunks(p))) * exact::kBeta);
}

TEST(BruckAllToAll, RefusesUnequalCounts) {
  Collective c = call(CommOp::AllToAllV, 0);
  c.send_counts = c.recv_counts = {1, 1};
  EXPECT_THAT(message_of([&] { bruck_all_to_all(c, 0, 2); }), testing::HasSubstr("all_to_all_v"));
}

}  // namespace
}  // namespace aisc::plan_runs
