// Two stages a rank: ZB-V, DualPipe, DualPipeV.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "05_pipeline/list_checks.h"
#include "05_pipeline/more/bidirectional.h"
#include "05_pipeline/schedules.h"
#include "05_pipeline/simulate.h"
#include "tests/05_pipeline/unit_time.h"

namespace aisc {
namespace {

using unit_time::expect_times;
using unit_time::lists_are;

TEST(ZeroBubbleVGiven, TwoRanksThreeMicroBatchesByHand) {
  const Schedule s = zb_v(2, 3);
  EXPECT_EQ(s.stage_of, (std::vector<std::vector<int>>{{0, 3}, {1, 2}}));
  ASSERT_TRUE(lists_are(s,
                        {"F0.0 F1.0 F2.0 F0.1 B0.1 W0.1 F1.1 B1.1 W1.1 B0.0 W0.0 F2.1 B2.1 W2.1 "
                         "B1.0 W1.0 B2.0 W2.0 U.0 U.1",
                         "F0.0 F0.1 F1.0 F1.1 B0.1 W0.1 F2.0 B0.0 W0.0 F2.1 B1.1 W1.1 B1.0 B2.1 "
                         "B2.0 W1.0 W2.1 W2.0 U.0 U.1"},
                        "the phases in schedules.h"));
  // Rank 1 begins one later; nobody idles after that.
  EXPECT_EQ(unit_time::run(s).idle, (std::vector<int>{0, 0}));
}

TEST(ZeroBubbleVGiven, NeverIdlesAndKeepsWhat1F1BsFirstRankKeeps) {
  for (int p = 1; p <= 8; ++p)
    for (int m = 2 * p - 1; m <= 16; ++m) {
      expect_times(zb_v(p, m), {}, 0, [&](int) { return 2 * p; });
      EXPECT_EQ(unit_time::run(zb_v(p, m)).total, 6 * m + p - 1) << p << " ranks, " << m;
    }
}

TEST(ZeroBubbleVGiven, IdlesForTheMicroBatchesThatThereAreNot) {
  for (int p = 2; p <= 8; ++p)
    for (int m = 1; m < 2 * p - 1; ++m) {
      const unit_time::Times t = unit_time::run(zb_v(p, m));
      ASSERT_EQ(t.problem, "") << p << " ranks, " << m << " micro-batches";
      EXPECT_EQ(t.bubble, 2 * (2 * p - 1 - m)) << p << " ranks, " << m << " micro-batches";
      for (const int most : t.in_flight) EXPECT_LE(most, 2 * std::min(p, m));
    }
}

// Each chunk is a pipeline of its own, with two micro-batches from each end.
TEST(DualPipeGiven, TwoRanksFourMicroBatchesByHand) {
  const Schedule s = dual_pipe(2, 4);
  EXPECT_EQ(s.micro_batches, 2);
  EXPECT_EQ(s.stage_of, (std::vector<std::vector<int>>{{0, 3}, {1, 2}}));
  ASSERT_TRUE(lists_are(s,
                        {"F0.0 F0.1 F1.0 B0.1 W0.1 F1.1 B0.0 W0.0 B1.1 W1.1 B1.0 W1.0 U.0 U.1",
                         "F0.1 F0.0 F1.1 B0.0 W0.0 F1.0 B0.1 W0.1 B1.0 W1.0 B1.1 W1.1 U.0 U.1"},
                        "rank 1 does with the one chunk what rank 0 does with the other"));
  EXPECT_EQ(unit_time::run(s).total, 12) << "both ranks are always busy";
}

TEST(DualPipeGiven, FourRanksEightMicroBatchesByHand) {
  const std::vector<std::string> found = unit_time::lists(dual_pipe(4, 8));
  EXPECT_EQ(found[0],
            "F0.0 F1.0 F2.0 F0.1 B0.1 W0.1 F1.1 F3.0 B1.1 W1.1 F2.1 B0.0 W0.0 B2.1 W2.1 F3.1 B1.0 "
            "W1.0 B3.1 W3.1 B2.0 W2.0 B3.0 W3.0 U.0 U.1");
  EXPECT_EQ(found[1],
            "F0.0 F0.1 F1.0 F1.1 F2.0 B0.1 W0.1 F2.1 B0.0 W0.0 F3.0 B1.1 W1.1 F3.1 B1.0 W1.0 B2.1 "
            "W2.1 B2.0 W2.0 B3.1 B3.0 W3.1 W3.0 U.0 U.1");
}

TEST(DualPipeGiven, IdlesHalfOfTheOtherRanksAndKeepsOneMoreThanThereAreRanks) {
  for (int p = 2; p <= 8; p += 2)
    for (int m = 2 * p; m <= 4 * p + 2; m += 2) {
      const Schedule s = dual_pipe(p, m);
      expect_times(s, {}, p / 2 - 1, [&](int) { return p + 1; });
      EXPECT_EQ(unit_time::run(s).total, 3 * m + p / 2 - 1) << p << " ranks, " << m;
    }
}

// Nothing passes from stage p - 1 to stage p: they are of two copies of the model.
TEST(DualPipeGiven, IsSimulatedAsTwoPipelines) {
  for (int p = 2; p <= 8; p += 2)
    for (const int m : {2 * p, 3 * p + p % 4, 4 * p + 2}) {
      const Schedule s = dual_pipe(p, m);
      const std::string what = std::to_string(p) + " ranks, " + std::to_string(m);
      EXPECT_EQ(message_problems(Handovers(s)), std::vector<std::string>{}) << what;
      const Simulation simulation =
          simulate(s, {{.forward = 1, .backward = 1, .weight_gradient = 1}});
      // DeepSeek's formula, (p/2 - 1)(F&B + B - 3W), is twice this: see schedules.h.
      const double idle = (p / 2 - 1) * (3 + 2 - 3 * 1) / 2.0;
      EXPECT_EQ(simulation.total_seconds, 3 * m + idle) << what;
      for (const RankTimes& rank : simulation.ranks) EXPECT_EQ(rank.idle_seconds, idle) << what;
      EXPECT_EQ(simulation.ranks[0].forward.messages, m / 2) << what << ": of chunk 0";
      EXPECT_EQ(simulation.ranks[0].backward.messages, m / 2) << what << ": of chunk 1";
    }
}

TEST(DualPipeGiven, ChunksAreMirrored) {
  for (int p = 2; p <= 8; p += 2) {
    const Schedule s = dual_pipe(p, 3 * p + p % 4);
    for (std::size_t rank = 0; rank < s.actions.size(); ++rank) {
      const std::vector<Action>& other = s.actions[s.actions.size() - 1 - rank];
      std::vector<Action> mirrored;
      for (Action a : s.actions[rank])
        if (a.kind != ActionKind::Update) {
          a.chunk = 1 - a.chunk;
          mirrored.push_back(a);
        }
      EXPECT_EQ(mirrored, std::vector<Action>(other.begin(), other.end() - 2)) << "rank " << rank;
    }
  }
}

TEST(DualPipeVGiven, OneRankTwoMicroBatchesByHand) {
  const Schedule s = dual_pipe_v(1, 2);
  EXPECT_EQ(s.stage_of, (std::vector<std::vector<int>>{{0, 1}}));
  EXPECT_TRUE(lists_are(s, {"F0.0 F0.1 F1.0 B0.1 W0.1 F1.1 B0.0 W0.0 B1.1 W1.1 B1.0 W1.0 U.0 U.1"},
                        "rank 0 of DualPipe's two"));
}

TEST(DualPipeVGiven, IdlesOneUnitForEachOtherRankAndKeepsOneMoreThanZBV) {
  for (int p = 1; p <= 6; ++p)
    for (int m = 2 * p; m <= 4 * p + 1; ++m) {
      const Schedule s = dual_pipe_v(p, m);
      expect_times(s, {}, p - 1, [&](int) { return 2 * p + 1; });
      EXPECT_EQ(unit_time::run(s).total, 6 * m + p - 1) << p << " ranks, " << m;
    }
}

}  // namespace
}  // namespace aisc
