// Weight gradients that wait: ZB-H1, and ZB-H2, whose lists are some of H1's.
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

TEST(ZeroBubbleH1, ThreeRanksFourMicroBatchesByHand) {
  const Schedule s = zb_h1(3, 4);
  ASSERT_TRUE(
      lists_are(s,
                {"F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3 U", "F0 F1 B0 F2 B1 W0 F3 B2 W1 B3 W2 W3 U",
                 "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3 U"},
                "3, 2 and 1 forwards come first; on rank r weight gradients wait for r "
                "later backwards"));
  // Everything takes 1. Rank 0 idles from 3 to 5, rank 2 never; W0 before F1 there would
  // let rank 0 wait for B1.
  const unit_time::Times t = unit_time::run(s);
  EXPECT_EQ(t.begins[0], (std::vector<int>{0, 1, 2, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}));
  EXPECT_EQ(t.begins[1], (std::vector<int>{1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}));
  EXPECT_EQ(t.begins[2], (std::vector<int>{2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}));
}

TEST(ZeroBubbleH1, WithFewerMicroBatchesThanRanksByHand) {
  EXPECT_TRUE(
      lists_are(zb_h1(3, 1), {"F0 B0 W0 U", "F0 B0 W0 U", "F0 B0 W0 U"}, "nothing to wait for"));
  EXPECT_TRUE(lists_are(
      zb_h1(4, 2),
      {"F0 F1 B0 W0 B1 W1 U", "F0 F1 B0 B1 W0 W1 U", "F0 F1 B0 B1 W0 W1 U", "F0 B0 F1 B1 W0 W1 U"},
      "rank 3 would let 3 weight gradients wait: there are 2"));
}

TEST(ZeroBubbleH1, IdlesOneUnitForEachOtherRankAndKeepsAsManyAsThereAreRanks) {
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 16 && !HasFailure(); ++m)
      expect_times(zb_h1(p, m), {}, std::max(p - 1, 2 * p - 1 - m),
                   [&](int) { return std::min(p, m); });
}

const std::vector<unit_time::Costs> kCosts{{1, 1, 1}, {4, 4, 2}, {3, 4, 2}, {2, 3, 2}, {19, 18, 9}};

TEST(ZeroBubbleH1, IdlesByTableTwoForOtherCosts) {
  const int p = static_cast<int>(drawn("ranks of zb-h1", 2, 10));
  const int m = static_cast<int>(drawn("micro-batches of zb-h1", 2 * p - 1, 4 * p));
  for (const auto& c : kCosts)
    expect_times(zb_h1(p, m), c, (p - 1) * (c.forward + c.backward - c.weight_gradient),
                 [&](int) { return p; });
}

TEST(ZeroBubbleH2, TwoRanksFourMicroBatchesByHand) {
  const Schedule s = zb_h2(2, 4);
  ASSERT_TRUE(lists_are(
      s, {"F0 F1 F2 B0 W0 F3 B1 W1 B2 W2 B3 W3 U", "F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3 U"},
      "3 and 1 forwards come first; weight gradients wait for 0 and for 2 later backwards"));
  const unit_time::Times t = unit_time::run(s);
  EXPECT_EQ(t.idle, (std::vector<int>{0, 0}));
  EXPECT_EQ(t.total, 13) << "12 units each, and rank 1 begins one later";
}

TEST(ZeroBubbleH2, FourRanksBeginWithSevenFiveThreeAndOneForwards) {
  const std::vector<std::string> found = unit_time::lists(zb_h2(4, 8));
  EXPECT_EQ(found[0].substr(0, 29), "F0 F1 F2 F3 F4 F5 F6 B0 W0 F7");
  EXPECT_EQ(found[1].substr(0, 29), "F0 F1 F2 F3 F4 B0 F5 B1 F6 B2");
  EXPECT_EQ(found[2].substr(0, 29), "F0 F1 F2 B0 F3 B1 F4 B2 F5 B3");
  EXPECT_EQ(found[3].substr(0, 29), "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4");
}

TEST(ZeroBubbleH2, NeverIdlesAndKeepsNearlyTwiceAsManyAsThereAreRanks) {
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 16 && !HasFailure(); ++m)
      expect_times(zb_h2(p, m), {}, std::max(0, 2 * p - 1 - m),
                   [&](int) { return std::min(2 * p - 1, m); });
}

TEST(ZeroBubbleH2, IdlesByTableTwoForOtherCosts) {
  const int p = static_cast<int>(drawn("ranks of zb-h2", 2, 10));
  const int m = static_cast<int>(drawn("micro-batches of zb-h2", 2 * p - 1, 4 * p));
  for (const auto& c : kCosts)
    expect_times(zb_h2(p, m), c, (p - 1) * (c.forward + c.backward - 2 * c.weight_gradient),
                 [&](int) { return 2 * p - 1; });
}

}  // namespace
}  // namespace aisc
