// Choosing by cost, on a flat network, where costs are formulas.
#include "09_collectives/choose.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

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

// "chain with 4 segments and 1 ranks a node"
std::string choice_in_words(const Choice& choice) {
  return std::string(choice.algorithm ? choice.algorithm->name : "nothing") + " with " +
         std::to_string(choice.tuning.segments) + " segments and " +
         std::to_string(choice.tuning.ranks_per_node) + " ranks a node";
}

TEST(Choose, TakesWhatTakesLeast) {
  for (const CommOp op : {CommOp::AllReduce, CommOp::ReduceScatter, CommOp::AllGather})
    for (const int p : {2, 3, 8, static_cast<int>(drawn("ranks of Choose", 9, 64))})
      for (double bytes = 8; bytes < 1e9; bytes *= 32) {
        const Choice choice = choose(op, p, bytes, kFlat);
        SCOPED_TRACE(testing::Message()
                     << name_of(op) << ", " << p << " ranks, " << bytes << " bytes");
        ASSERT_NE(choice.algorithm, nullptr) << "no algorithm is chosen";
        EXPECT_EQ(choice.algorithm->op, op)
            << "the operation of the algorithm chosen, " << choice.algorithm->name;
        EXPECT_EQ(choice.seconds, least_seconds(op, p, bytes, kFlat))
            << "seconds of the choice, " << choice_in_words(choice)
            << ", beside the least of all algorithms and tunings";
        EXPECT_EQ(choice.seconds, cost(*choice.algorithm, p, bytes, kFlat, choice.tuning).seconds)
            << "seconds of the choice, beside what cost() says of " << choice_in_words(choice);
        if (testing::Test::HasFailure()) return;
      }
}

// Two trees, which are best for so many ranks, want other segments for each size.
TEST(Choose, TriesEveryTuning) {
  const Network network{.link = {.latency_seconds = 0x1p-18, .seconds_per_byte = 0x1p-30}};
  std::set<int> segments;
  for (double bytes = 1 << 16; bytes < 1e9; bytes *= 4) {
    const Choice choice = choose(CommOp::AllReduce, 48, bytes, network);
    segments.insert(choice.tuning.segments);
    EXPECT_EQ(choice.seconds, least_seconds(CommOp::AllReduce, 48, bytes, network))
        << "all_reduce, 48 ranks, " << bytes << " bytes: seconds of the choice, "
        << choice_in_words(choice) << ", beside the least of all algorithms and tunings";
  }
  EXPECT_GT(segments.size(), 1u)
      << "all_reduce, 48 ranks, 64 KiB to 1 GB: how many different numbers of segments are chosen";
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
      ASSERT_NE(choice.algorithm, nullptr) << "no algorithm is chosen";
      EXPECT_EQ(choice.seconds, least_seconds(CommOp::Gather, p, bytes, network))
          << "seconds of the choice, " << choice_in_words(choice)
          << ", beside the least of all algorithms and tunings";
      EXPECT_NE(choice.seconds, choice.algorithm->cost(p, bytes, network, choice.tuning).seconds)
          << "seconds of " << choice_in_words(choice)
          << ": the formula of a flat network says too little "
          << "here, cost() does not";
    }
}

TEST(Choose, TakesTheFirstOfSeveralThatTakeTheSame) {
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.op == CommOp::Broadcast) continue;  // its chain is an exercise of its own
    const Choice choice = choose(algorithm.op, 1, 64, kFlat);  // alone: nothing takes any time
    EXPECT_EQ(choice.seconds, 0) << name_of(algorithm.op) << " of one rank: seconds";
    const auto all = algorithms();
    const auto first = std::find_if(all.begin(), all.end(),
                                    [&](const Algorithm& a) { return a.op == algorithm.op; });
    ASSERT_NE(choice.algorithm, nullptr) << name_of(algorithm.op) << ": no algorithm is chosen";
    EXPECT_EQ(choice.algorithm->name, first->name)
        << name_of(algorithm.op) << " of one rank: the first of several that take the same";
    EXPECT_EQ(choice.algorithm, &*first) << name_of(algorithm.op) << ": its place in algorithms()";
  }
}

TEST(Choose, RefusesWhatHasNoAlgorithm) {
  EXPECT_THAT(message_of([] { choose(CommOp::Split, 2, 8, kFlat); }), testing::HasSubstr("split"));
}

}  // namespace
}  // namespace aisc::exact
