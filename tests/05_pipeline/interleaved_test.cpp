// Megatron's interleaved 1F1B.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "05_pipeline/schedules.h"
#include "tests/05_pipeline/unit_time.h"
#include "tests/support/drawn.h"

namespace aisc {
namespace {

using unit_time::expect_times;
using unit_time::lists_are;

TEST(Interleaved, TwoRanksTwoChunksFourMicroBatchesByHand) {
  ASSERT_TRUE(lists_are(
      interleaved(2, 2, 4),
      {"F0.0 F1.0 F0.1 F1.1 F2.0 B0.1 F3.0 B1.1 F2.1 B0.0 F3.1 B1.0 B2.1 B3.1 B2.0 B3.0 U.0 U.1",
       "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 F2.0 B0.0 F3.0 B1.0 F2.1 B2.1 F3.1 B3.1 B2.0 B3.0 U.0 U.1"},
      "micro-batches go over chunk 0 and then chunk 1 by twos, and back over chunk 1 first; 4 and "
      "2 forwards come first"));
}

TEST(Interleaved, AllForwardsFirstWhereThereAreNoMoreByHand) {
  EXPECT_TRUE(lists_are(interleaved(2, 2, 2),
                        {"F0.0 F1.0 F0.1 F1.1 B0.1 B1.1 B0.0 B1.0 U.0 U.1",
                         "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 B0.0 B1.0 U.0 U.1"},
                        "4 and 2 forwards first; rank 0 has no more"));
  const std::string all = "F0.0 F1.0 F2.0 F0.1 F1.1 F2.1 B0.1 B1.1 B2.1 B0.0 B1.0 B2.0 U.0 U.1";
  EXPECT_TRUE(
      lists_are(interleaved(3, 2, 3),
                {all, all, "F0.0 F1.0 F2.0 F0.1 B0.1 F1.1 B1.1 F2.1 B2.1 B0.0 B1.0 B2.0 U.0 U.1"},
                "rank 0 would begin with 7 forwards: there are 6"));
}

TEST(Interleaved, ThreeRanksThreeChunksBeginByHand) {
  const std::vector<std::string> found = unit_time::lists(interleaved(3, 3, 6));
  EXPECT_EQ(found[1].substr(0, 64),
            "F0.0 F1.0 F2.0 F0.1 F1.1 F2.1 F0.2 F1.2 F2.2 B0.2 F3.0 B1.2 F4.0")
      << "rank 1 of 3: 2 (3 - 1 - 1) + 2 * 3 = 8 forwards first";
}

TEST(Interleaved, HasTheStagesInRounds) {
  EXPECT_EQ(interleaved(3, 2, 3).stage_of, (std::vector<std::vector<int>>{{0, 3}, {1, 4}, {2, 5}}));
}

// In units of a chunk. 1F1B's stages are v times as long, and its bubble is v times 3 (p - 1).
TEST(Interleaved, IdlesAChunkForEachOtherRankAndKeepsOneMoreThanItsFirstForwards) {
  const auto expect = [](int p, int v, int m) {
    expect_times(interleaved(p, v, m), {}, 3 * (p - 1),
                 [&](int rank) { return std::min(2 * (p - rank - 1) + (v - 1) * p + 1, m * v); });
  };
  for (int p = 1; p <= 8; ++p)
    for (int v = 2; v <= 4; ++v)
      for (int m = p; m <= 16 && !HasFailure(); m += p) expect(p, v, m);
  const int p = static_cast<int>(drawn("ranks of interleaved", 9, 12));
  expect(p, static_cast<int>(drawn("chunks of interleaved", 2, 5)),
         p * static_cast<int>(drawn("groups of interleaved", 1, 4)));
}

}  // namespace
}  // namespace aisc
