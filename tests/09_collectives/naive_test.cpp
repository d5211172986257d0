// The sum at rank 0: values, the order of additions, and what it costs to send all to one.
#include "09_collectives/naive.h"

#include <gtest/gtest.h>

#include "tests/09_collectives/plan_pieces.h"
#include "tests/09_collectives/run_plans.h"

namespace aisc::plan_runs {
namespace {

TEST(NaiveAllReduce, AddsThreeRanksWorkedOutByHand) {
  SCOPED_TRACE("three ranks, two elements");
  EXPECT_EQ(outputs(naive_all_reduce, all_reduce(2), {{1, 2}, {10, 20}, {100, 200}}),
            (Rows{{111, 222}, {111, 222}, {111, 222}}))
      << "ranks that begin with 1 2, 10 20 and 100 200: what each ends with";
}

TEST(NaiveAllReduce, SumsOnEveryRank) {
  const auto expect_sums = [](int p, std::int64_t n, int = 0) {
    run_call(CommOp::AllReduce, naive_all_reduce, p, n);
  };
  for_sizes_and_counts(expect_sums);
  for_drawn_sizes("NaiveAllReduce", 20, 3000, expect_sums);
}

TEST(NaiveAllReduce, AddsInTheOrderOfTheRanksAndGivesAllTheSameBits) {
  for (const int p : {2, 3, 7, 16})
    EXPECT_EQ(expect_same_bits(naive_all_reduce, p), added_in_order(p)) << p << " ranks";
}

TEST(NaiveAllReduce, RankZeroSendsAndAddsAsMuchAsAllOthersTogether) {
  for_sizes_and_counts([](int p, std::int64_t n) {
    const bool is_sent = p > 1 && n > 0;
    for (int r = 0; r < p; ++r) {
      const Traffic t = traffic_of(naive_all_reduce(all_reduce(n), r, p));
      EXPECT_EQ(t.steps, is_sent ? 2 : 0) << "rank " << r << ": steps";
      EXPECT_EQ(t.messages, !is_sent ? 0
                            : r == 0 ? p - 1
                                     : 1)
          << "rank " << r << ": messages that it sends";
      EXPECT_EQ(t.elements, r == 0 ? (p - 1) * n : n) << "rank " << r << ": elements that it sends";
      EXPECT_EQ(t.added, r == 0 ? (p - 1) * n : 0) << "rank " << r << ": elements that it adds";
    }
  });
}

TEST(NaiveAllReduce, DoesNotAskForFarMoreScratchThanItNeeds) {
  // Rank 0 has room for what two others send; they need none.
  expect_scratch(naive_all_reduce, all_reduce(5), 3, [](int r) { return r == 0 ? 10 : 0; });
  if (testing::Test::HasFailure()) return;
  for_sizes_and_counts([](int p, std::int64_t n) {
    expect_scratch(naive_all_reduce, all_reduce(n), p,
                   [&](int r) { return r == 0 ? (p - 1) * n : 0; });
  });
}

TEST(NaiveAllReduce, SendsCountsThatNoIntHolds) {
  EXPECT_EQ(elements_sent(naive_all_reduce, all_reduce(kBeyondInt), 4), 2 * 3 * kBeyondInt)
      << "elements that all ranks send, more than an int holds";
}

TEST(NaiveAllReduce, RunsAsPlannedOnThreads) {
  for (const int p : {1, 2, 3, 7, 16}) expect_runs_as_planned(naive_all_reduce, all_reduce(40), p);
}

TEST(NaiveAllReduce, TakesTheTimeOfItsFormulaFor1To64Ranks) {
  for (int p = 1; p <= 64 && !testing::Test::HasFailure(); ++p)
    for (const std::int64_t n : {1, 256, 65'536}) {
      const double bytes = exact::bytes(static_cast<double>((p - 1) * n));
      EXPECT_EQ(simulated_seconds(naive_all_reduce, all_reduce(n), p),
                p == 1 ? 0 : 2 * (exact::kAlpha + bytes * exact::kBeta) + bytes * exact::kGamma)
          << p << " ranks, count " << n;
    }
}

}  // namespace
}  // namespace aisc::plan_runs
