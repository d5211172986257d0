// Choosing by cost, on a flat network, where costs are formulas.
#include "09_collectives/choose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "09_collectives/cost.h"
#include "tests/support/drawn.h"
#include "tests/support/exact_network.h"
#include "tests/support/message_of.h"

namespace aisc::exact {
namespace {

// Of all algorithms and tunings, looked through one by one.
double least_seconds(CommOp op, int ranks, double bytes, const Network& network) {
  double least = HUGE_VAL;
  for (const Algorithm& algorithm : algorithms())
    if (algorithm.op == op)
      for (const Tuning& tuning : algorithm.tunings(ranks, bytes, network))
        least = std::min(least, cost(algorithm, ranks, bytes, network, tuning).seconds);
  return least;
}

TEST(Choose, TakesWhatTakesLeast) {
  for (const CommOp op : {CommOp::AllReduce, CommOp::ReduceScatter, CommOp::AllGather})
    for (const int p : {2, 3, 8, static_cast<int>(drawn("ranks of Choose", 9, 64))})
      for (double bytes = 8; bytes < 1e9; bytes *= 32) {
        const Choice choice = choose(op, p, bytes, kFlat);
        SCOPED_TRACE(testing::Message() << name_of(op) << ", " << p << " ranks, " << bytes);
        ASSERT_NE(choice.algorithm, nullptr);
        EXPECT_EQ(choice.algorithm->op, op);
        EXPECT_EQ(choice.seconds, least_seconds(op, p, bytes, kFlat));
        EXPECT_EQ(choice.seconds, cost(*choice.algorithm, p, bytes, kFlat, choice.tuning).seconds);
      }
}

// Two trees, which are best for so many ranks, want other segments for each size.
TEST(Choose, TriesEveryTuning) {
  const Network network{.link = {.latency_seconds = 0x1p-18, .seconds_per_byte = 0x1p-30}};
  std::set<int> segments;
  for (double bytes = 1 << 16; bytes < 1e9; bytes *= 4) {
    const Choice choice = choose(CommOp::AllReduce, 48, bytes, network);
    segments.insert(choice.tuning.segments);
    EXPECT_EQ(choice.seconds, least_seconds(CommOp::AllReduce, 48, bytes, network));
  }
  EXPECT_GT(segments.size(), 1u);
}

// Where ranks share a card the formulas, which are those of a flat network, say too little. Both
// gathers are given code.
TEST(Choose, TakesWhatTakesLeastOnNodes) {
  Network network = kFlat;
  network.ranks_per_node = 4;
  network.card = {.latency_seconds = 4 * kAlpha, .seconds_per_byte = 8 * kBeta};
  network.cards_per_node = 1;
  for (const int p : {6, 8, 16})
    for (double bytes = 64.0 * p; bytes < 1e7; bytes *= 8) {
      SCOPED_TRACE(testing::Message() << p << " ranks, " << bytes << " bytes");
      const Choice choice = choose(CommOp::Gather, p, bytes, network);
      ASSERT_NE(choice.algorithm, nullptr);
      EXPECT_EQ(choice.seconds, least_seconds(CommOp::Gather, p, bytes, network));
      EXPECT_NE(choice.seconds, choice.algorithm->cost(p, bytes, network, choice.tuning).seconds);
    }
}

TEST(Choose, TakesTheFirstOfSeveralThatTakeTheSame) {
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.op == CommOp::Broadcast) continue;  // its chain is an exercise of its own
    const Choice choice = choose(algorithm.op, 1, 64, kFlat);  // alone: nothing takes any time
    EXPECT_EQ(choice.seconds, 0);
    const auto all = algorithms();
    const auto first = std::find_if(all.begin(), all.end(),
                                    [&](const Algorithm& a) { return a.op == algorithm.op; });
    EXPECT_EQ(choice.algorithm, &*first);
  }
}

TEST(Choose, RefusesWhatHasNoAlgorithm) {
  EXPECT_THAT(message_of([] { choose(CommOp::Split, 2, 8, kFlat); }), testing::HasSubstr("split"));
}

}  // namespace
}  // namespace aisc::exact
