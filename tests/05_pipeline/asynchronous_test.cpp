// PipeDream and PipeDream-2BW: updates while micro-batches are on their way.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "05_pipeline/schedules.h"
#include "tests/05_pipeline/unit_time.h"

namespace aisc {
namespace {

using unit_time::lists_are;

// By micro-batch, updates of `rank` before its forward.
std::vector<int> updates_before_forward(const Schedule& s, int rank) {
  std::vector<int> before;
  int updates = 0;
  for (const Action& a : s.actions[index(rank)]) {
    if (a.kind == ActionKind::Update) ++updates;
    if (a.kind == ActionKind::Forward) before.push_back(updates);
  }
  return before;
}

// Runs as 1F1B does, and each update is after every `period`-th backward, directly.
void expect_order(const Schedule& s, int period) {
  const int p = s.ranks(), m = s.micro_batches;
  const std::string what =
      s.name + " of " + std::to_string(p) + " ranks, " + std::to_string(m) + " micro-batches: ";
  const unit_time::Times t = unit_time::run(s);
  ASSERT_EQ(t.problem, "") << what;
  EXPECT_EQ(t.bubble, 3 * (p - 1)) << what;
  for (int rank = 0; rank < p; ++rank) {
    const auto& list = s.actions[index(rank)];
    EXPECT_EQ(t.in_flight[index(rank)], std::min(p - rank, m)) << what << "rank " << rank;
    int updates = 0;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (list[i].kind != ActionKind::Update) continue;
      ASSERT_GT(i, 0U) << what << "rank " << rank;
      EXPECT_EQ(list[i - 1], (Action{ActionKind::Backward, list[i].micro_batch}))
          << what << "rank " << rank << ": an update has not the last backward's gradient";
      EXPECT_EQ(list[i].micro_batch, ++updates * period - 1) << what << "rank " << rank;
    }
    EXPECT_EQ(updates, m / period) << what << "rank " << rank;
  }
}

TEST(AsynchronousGiven, PipeDreamUpdatesAfterEachBackwardByHand) {
  EXPECT_TRUE(lists_are(pipedream(3, 4),
                        {"F0 F1 F2 B0 U F3 B1 U B2 U B3 U", "F0 F1 B0 U F2 B1 U F3 B2 U B3 U",
                         "F0 B0 U F1 B1 U F2 B2 U F3 B3 U"},
                        "1F1B with an update after each backward"));
}

TEST(AsynchronousGiven, PipeDreamHasTheOrderOf1F1B) {
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 16; ++m) expect_order(pipedream(p, m), 1);
}

// Stage s (from 1) of p uses in step t the weights of step t - p + s.
TEST(AsynchronousGiven, PipeDreamsForwardsMissTheUpdatesOfTheRanksBehindIt) {
  for (int p = 1; p <= 8; ++p)
    for (int rank = 0; rank < p; ++rank) {
      std::vector<int> expected;
      for (int k = 0; k < 16; ++k) expected.push_back(std::max(0, k - (p - rank - 1)));
      EXPECT_EQ(updates_before_forward(pipedream(p, 16), rank), expected)
          << "rank " << rank << " of " << p;
    }
}

TEST(AsynchronousGiven, TwoBufferedWeightsAreUpdatedOnceABatchByHand) {
  const Schedule s = two_bw(2, 2, 3);
  EXPECT_EQ(s.micro_batches, 6);
  EXPECT_TRUE(lists_are(
      s, {"F0 F1 B0 F2 B1 U F3 B2 F4 B3 U F5 B4 B5 U", "F0 B0 F1 B1 U F2 B2 F3 B3 U F4 B4 F5 B5 U"},
      "1F1B through all batches, with an update after the second backward of each"));
}

// The version that micro-batch k is to use is there, and it is one of the last two.
TEST(AsynchronousGiven, TwoVersionsAreEnoughFor2BW) {
  for (int p = 1; p <= 6; ++p)
    for (int m = p; m <= p + 4; ++m) {
      const Schedule s = two_bw(p, m, 4);
      expect_order(s, m);
      for (int rank = 0; rank < p; ++rank) {
        const std::vector<int> newest = updates_before_forward(s, rank);
        for (int k = 0; k < s.micro_batches; ++k) {
          const int version = std::max(k / m - 1, 0), there = newest[index(k)];
          EXPECT_TRUE(version == there || version == there - 1)
              << "rank " << rank << " of " << p << ", micro-batch " << k << " of batches of " << m
              << ": wants version " << version << ", the newest is " << there;
        }
      }
    }
}

}  // namespace
}  // namespace aisc
