// Formulas of trees in pieces against plans that are counted and simulated (of up to 64 ranks: in
// menu_test.cpp); the best number of pieces against all others; and what the pair of trees is for,
// in numbers.
#include "09_collectives/solution/cost_formulas.h"

#include <gtest/gtest.h>

#include "09_collectives/double_tree.h"
#include "09_collectives/in_network.h"
#include "tests/09_collectives/plan_costs.h"
#include "tests/support/message_of.h"

namespace aisc::plan_costs {
namespace {

using plan_runs::log2_ceil;

using Segmented = Plan (*)(const Collective&, int, int, int);

PlanMaker in_segments(Segmented plan, int segments) {
  return [=](const Collective& c, int rank, int size) { return plan(c, rank, size, segments); };
}

TEST(DoubleTreeCost, IsWhatPlansCountAndTakeForHundredsOfRanks) {
  for (const int ranks : {99, 129, 257, 578, 1000})
    for (const int k : {1, 2, 3, 7}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, " << k << " segments");
      const int bytes = 8 * 32 * k;
      expect_equal(double_tree_cost(ranks, bytes, exact::kFlat, {.segments = k}),
                   counted(in_segments(double_tree_all_reduce, k), CommOp::AllReduce, ranks, bytes,
                           exact::kFlat));
    }
}

// Of 2^30 bytes the least that any rank must send is nearly 2 n, which takes a second here.
const Network kDatacenter{.link = {.latency_seconds = 0x1p-18, .seconds_per_byte = 0x1p-31},
                          .reduce_seconds_per_byte = 0x1p-36};

double double_tree(int ranks, double bytes) {
  const int k = best_double_tree_segments(ranks, bytes, kDatacenter);
  return double_tree_cost(ranks, bytes, kDatacenter, {.segments = k}).seconds;
}
double ring(int ranks, double bytes) {
  const double p = ranks, chunk = bytes / p;
  const auto& [a, b] = kDatacenter.link;
  return 2 * (p - 1) * (a + chunk * b) + (p - 1) * chunk * kDatacenter.reduce_seconds_per_byte;
}
double recursive_doubling(int ranks, double bytes) {  // of a power of two
  const auto& [a, b] = kDatacenter.link;
  return static_cast<double>(log2_ceil(ranks)) *
         (a + bytes * (b + kDatacenter.reduce_seconds_per_byte));
}

TEST(DoubleTreeCost, ComesNearTwiceTheBufferForLongBuffers) {
  for (const int ranks : {4, 64, 1024, 16384}) {
    const double n = 0x1p30, least = 2 * n * kDatacenter.link.seconds_per_byte;
    EXPECT_GT(double_tree(ranks, n), least);
    EXPECT_LT(double_tree(ranks, n), 1.06 * least) << ranks;
    EXPECT_LT(double_tree(ranks, n), recursive_doubling(ranks, n)) << ranks;
  }
}

TEST(DoubleTreeCost, BeatsRingsForShortBuffersAndRecursiveDoublingForLongOnes) {
  for (const int ranks : {64, 1024})
    for (const double n : {0x1p2, 0x1p10, 0x1p16, 0x1p20}) {
      EXPECT_LT(double_tree(ranks, n), ring(ranks, n)) << ranks << " ranks, " << n << " bytes";
    }
  for (const double n : {0x1p20, 0x1p24, 0x1p28})
    for (const int ranks : {64, 1024})
      EXPECT_LT(double_tree(ranks, n), recursive_doubling(ranks, n)) << n << " bytes";
}

// "Massively scale your deep learning training with NCCL 2.4": up to 180 times lower latency than
// rings on 24,576 GPUs. In steps alone it is 2 (p - 1) against 2 ceil(log2 p).
TEST(DoubleTreeCost, HasALatencyThatRingsOf24576RanksCannotReach) {
  EXPECT_EQ(2 * log2_ceil(24576), 30);
  EXPECT_EQ(double_tree_cost(24576, 0, kDatacenter, {}).seconds, 30 * 0x1p-18);
  EXPECT_EQ(ring(24576, 0), 2 * 24575 * 0x1p-18);
}

// ---- segments

int best_of_all(int ranks, double bytes, const Network& network, int most) {
  int best = 1;
  for (int k = 2; k <= most; ++k) {
    const auto seconds = [&](int segments) {
      return double_tree_cost(ranks, bytes, network, {.segments = segments}).seconds;
    };
    if (seconds(k) < seconds(best)) best = k;
  }
  return best;
}

TEST(BestDoubleTreeSegments, AreBetterThanAllOthers) {
  for (const Network& network : flat_networks())
    for (const int ranks : {1, 2, 3, 4, 5, 8, 9, 17, 33, 64, 1000})
      for (const double bytes : {0.0, 1.0, 2.0, 7.0, 100.0, 4096.0, 65536.0, 1e6}) {
        SCOPED_TRACE(testing::Message() << ranks << " ranks, " << bytes << " bytes");
        for (const int most : {1, 5, 600}) {
          const int limit = std::min(most, std::max(1, static_cast<int>(bytes / 2)));
          const int best = best_double_tree_segments(ranks, bytes, network, most);
          const int expected = best_of_all(ranks, bytes, network, limit);
          const auto seconds = [&](int k) {
            return double_tree_cost(ranks, bytes, network, {.segments = k}).seconds;
          };
          EXPECT_DOUBLE_EQ(seconds(best), seconds(expected)) << best << " or " << expected;
          EXPECT_LE(best, limit);
          EXPECT_NEAR(best, expected, 1);  // where two take the same but for rounding
        }
      }
}

// k = sqrt((2 L - 3) n (b + g / 2) / (2 a)) = sqrt(9 * 2^18 * 2^-20 * 9/8 / 2^-9) = 36 for L = 6.
TEST(BestDoubleTreeSegments, AreTheRootOfLatencyAndBytes) {
  EXPECT_EQ(best_double_tree_segments(64, 0x1p18, exact::kFlat), 36);
  EXPECT_EQ(best_double_tree_segments(64, 0x1p20, exact::kFlat), 72);
}

TEST(BestDoubleTreeSegments, AreAsManyAsAllowedWhereLatencyIsNothing) {
  const Network network{.link = {.seconds_per_byte = 0x1p-20}};
  EXPECT_EQ(best_double_tree_segments(8, 0x1p20, network, 77), 77);
  EXPECT_EQ(best_double_tree_segments(8, 64, network, 77), 32);  // one byte each
  EXPECT_EQ(best_double_tree_segments(2, 0x1p20, network, 77), 1);
  EXPECT_EQ(best_double_tree_segments(8, 0, network, 77), 1);
}

TEST(BestDoubleTreeSegments, RefuseLessThanOne) {
  EXPECT_EQ(message_of([] { best_double_tree_segments(8, 64, exact::kFlat, 0); }),
            "best_double_tree_segments: at most 0 segments, at least 1 expected");
}

// ---- in the network

TEST(InNetworkCost, IsWhatPlansCountAndTakeForUpTo64Ranks) {
  for (int ranks = 1; ranks <= 64; ++ranks)
    for (const int k : {1, 2, 5}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, " << k << " segments");
      const int bytes = 4 * 32 * k;
      const Network network = in_network(ranks, exact::kFlat.link);
      expect_equal(in_network_cost(ranks + 1, bytes, network, {.segments = k}),
                   counted(in_segments(in_network_all_reduce, k), CommOp::AllReduce, ranks + 1,
                           bytes, network));
    }
}

}  // namespace
}  // namespace aisc::plan_costs
