// One micro-batch at a time, and all of them forward, then backward.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "05_pipeline/schedules.h"
#include "tests/05_pipeline/unit_time.h"
#include "tests/support/drawn.h"

namespace aisc {
namespace {

using unit_time::expect_times;
using unit_time::lists_are;

TEST(GPipe, ThreeRanksTwoMicroBatchesByHand) {
  const std::string list = "F0 F1 B0 B1 U";
  const Schedule s = gpipe(3, 2);
  ASSERT_TRUE(lists_are(s, {list, list, list},
                        "all forwards come before all backwards, in the same order on all ranks"));
  // Forward takes 1, backward 2:
  //   rank 0  F0 F1 .  .  .  .  B0 B0 B1 B1
  //   rank 1  .  F0 F1 .  B0 B0 B1 B1
  //   rank 2  .  .  F0 F1 ... one later:
  const unit_time::Times t = unit_time::run(s);
  EXPECT_EQ(t.begins[2], (std::vector<int>{2, 3, 4, 6, 8}));
  EXPECT_EQ(t.begins[1], (std::vector<int>{1, 2, 6, 8, 10}));
  EXPECT_EQ(t.begins[0], (std::vector<int>{0, 1, 8, 10, 12}));
}

TEST(GPipe, IdlesForAllRanksButOneOfAMicroBatchAndKeepsAll) {
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 16 && !HasFailure(); ++m)
      expect_times(gpipe(p, m), {}, 3 * (p - 1), [&](int) { return m; });
  const int p = static_cast<int>(drawn("ranks of gpipe", 9, 14));
  const int m = static_cast<int>(drawn("micro-batches of gpipe", 17, 30));
  expect_times(gpipe(p, m), {.forward = 2, .backward = 3, .weight_gradient = 2}, 7 * (p - 1),
               [&](int) { return m; });
}

TEST(NaiveGiven, OneMicroBatchIsThroughBeforeTheNextBeginsByHand) {
  const std::string list = "F0 B0 F1 B1 F2 B2 U";
  const Schedule s = naive(2, 3);
  ASSERT_TRUE(lists_are(s, {list, list}, "forward and backward in turn"));
  const unit_time::Times t = unit_time::run(s);
  EXPECT_EQ(t.begins[0], (std::vector<int>{0, 4, 6, 10, 12, 16, 18}));
  EXPECT_EQ(t.begins[1], (std::vector<int>{1, 2, 7, 8, 13, 14, 16}));
}

// Rank 0 idles between each forward and its backward, while all others work.
TEST(NaiveGiven, IdlesForAllRanksButOneOfEachMicroBatch) {
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 16 && !HasFailure(); ++m)
      expect_times(naive(p, m), {}, 3 * m * (p - 1), [](int) { return 1; });
}

}  // namespace
}  // namespace aisc
