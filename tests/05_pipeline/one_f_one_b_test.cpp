// 1F1B with flush.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "05_pipeline/schedules.h"
#include "tests/05_pipeline/unit_time.h"
#include "tests/support/drawn.h"

namespace aisc {
namespace {

using unit_time::expect_times;
using unit_time::lists_are;

TEST(OneFOneB, ThreeRanksFourMicroBatchesByHand) {
  const Schedule s = one_f_one_b(3, 4);
  ASSERT_TRUE(lists_are(
      s, {"F0 F1 F2 B0 F3 B1 B2 B3 U", "F0 F1 B0 F2 B1 F3 B2 B3 U", "F0 B0 F1 B1 F2 B2 F3 B3 U"},
      "2, 1 and 0 forwards come first, then a forward and a backward in turn, then backwards"));
  // Forward takes 1, backward 2. Rank 2 is busy from 2 on; rank 0 idles 3 before B0, 1 before each
  // of B1, B2 and B3, since rank 2 needs 3 a micro-batch: 6 of 18 in all.
  const unit_time::Times t = unit_time::run(s);
  EXPECT_EQ(t.begins[2], (std::vector<int>{2, 3, 5, 6, 8, 9, 11, 12, 14}));
  EXPECT_EQ(t.begins[0], (std::vector<int>{0, 1, 2, 7, 9, 10, 13, 16, 18}));
}

TEST(OneFOneB, WithFewerMicroBatchesThanRanksByHand) {
  EXPECT_TRUE(lists_are(one_f_one_b(4, 2),
                        {"F0 F1 B0 B1 U", "F0 F1 B0 B1 U", "F0 F1 B0 B1 U", "F0 B0 F1 B1 U"},
                        "rank 0 would begin with 3 forwards: there are 2"));
}

TEST(OneFOneB, IdlesAsGPipeAndKeepsAtMostItsDistanceFromTheEnd) {
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 16 && !HasFailure(); ++m)
      expect_times(one_f_one_b(p, m), {}, 3 * (p - 1),
                   [&](int rank) { return std::min(p - rank, m); });
  const int p = static_cast<int>(drawn("ranks of 1f1b", 9, 14));
  const int m = static_cast<int>(drawn("micro-batches of 1f1b", 6, 30));
  expect_times(one_f_one_b(p, m), {.forward = 2, .backward = 3, .weight_gradient = 2}, 7 * (p - 1),
               [&](int rank) { return std::min(p - rank, m); });
}

}  // namespace
}  // namespace aisc
