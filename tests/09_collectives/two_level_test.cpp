// All-reduce on two levels: values and bits for full nodes and others, what crosses between nodes,
// and the time on networks whose nodes have a card for each rank, or one for all.
#include "09_collectives/two_level.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/09_collectives/plan_pieces.h"
#include "tests/09_collectives/run_plans.h"

namespace aisc::plan_runs {
namespace {

using exact::kAlpha, exact::kBeta, exact::kGamma;

constexpr int kNodes[] = {1, 2, 3, 4, 8, 40};  // ranks per node

PlanMaker two_level(int g) {
  return [g](const Collective& c, int rank, int size) {
    return two_level_all_reduce(c, rank, size, g);
  };
}

Total run_all_reduce(int p, std::int64_t n, int g) {
  SCOPED_TRACE(testing::Message() << "nodes of " << g);
  return run_call(CommOp::AllReduce, two_level(g), p, n).total;
}

TEST(TwoLevelAllReduce, SumsOnEveryRank) {
  for_sizes_and_counts([](int p, std::int64_t n) {
    for (const int g : kNodes) run_all_reduce(p, n, g);
  });
  for_drawn_sizes("TwoLevelAllReduce", 70, 2000, [](int p, std::int64_t n, int) {
    const std::string what = "ranks per node of TwoLevelAllReduce" + std::to_string(n);
    run_all_reduce(p, n, static_cast<int>(drawn(what, 2, 12)));
  });
}

TEST(TwoLevelAllReduce, GivesAllRanksTheSameBits) {
  for (const int p : kSizes)
    for (const int g : kNodes) {
      SCOPED_TRACE(testing::Message() << "nodes of " << g);
      expect_same_bits(two_level(g), p);
    }
}

// Two nodes' sums, whose order does not matter, of ranks in their order.
TEST(TwoLevelAllReduce, AddsInTheOrderOfTheRanksOfANode) {
  constexpr int g = 5, n = 1000;
  for (const int p : {5, 8, 10}) {
    SCOPED_TRACE(testing::Message() << p << " ranks");
    std::vector<float> expected;
    for (int i = 0; i < n; ++i) {
      float node_sums[2] = {losing_bits(0, i), p > g ? losing_bits(g, i) : 0};
      for (int r = 0; r < p; ++r)
        if (r % g > 0) node_sums[r / g] += losing_bits(r, i);
      expected.push_back(node_sums[0] + node_sums[1]);
    }
    EXPECT_EQ(expect_same_bits(two_level(g), p), expected);
  }
}

// Whatever the nodes are, and whether they are full: what any all_reduce without a detour sends.
TEST(TwoLevelAllReduce, SendsNothingTwice) {
  for_sizes_and_counts([](int p, std::int64_t n) {
    for (const int g : kNodes) {
      const Total total = run_all_reduce(p, n, g);
      EXPECT_EQ(total.sum.elements, 2 * (p - 1) * n) << "elements that all ranks send together";
      EXPECT_EQ(total.sum.added, (p - 1) * n) << "elements that all ranks add together";
    }
  });
}

TEST(TwoLevelAllReduce, TakesTwoStepsInTheNodeAndARingBetweenNodes) {
  for (const int g : {2, 3, 8})
    for (const int m : {1, 2, 3, 5}) {
      const Total total = run_all_reduce(m * g, 120 * m * g, g);
      EXPECT_EQ(total.most.steps, 2 + 2 * (m - 1)) << m << " nodes of " << g;
      EXPECT_EQ(total.rounds, 2 + 2 * (m - 1)) << m << " nodes of " << g;
    }
}

// Ranks 4 and 5 are a node of two. Of four chunks rank 4 owns 0 and 2, rank 5 owns 1 and 3.
TEST(TwoLevelAllReduce, GivesTheRanksOfASmallerNodeMoreChunks) {
  const auto text = [](int rank) {
    return sends_of(two_level_all_reduce(all_reduce(16), rank, 6, 4));
  };
  EXPECT_EQ(text(0), "1: 4, 2: 4, 3: 4 | 4: 2 | 4: 2 | 1: 4, 2: 4, 3: 4")
      << "rank 0 of 6: what it sends, step by step (to whom: elements)";
  EXPECT_EQ(text(4), "5: 4, 5: 4 | 0: 2, 2: 2 | 0: 2, 2: 2 | 5: 4, 5: 4")
      << "rank 4 of 6: what it sends, step by step (to whom: elements)";
  EXPECT_EQ(text(5), "4: 4, 4: 4 | 1: 2, 3: 2 | 1: 2, 3: 2 | 4: 4, 4: 4")
      << "rank 5 of 6: what it sends, step by step (to whom: elements)";
}

TEST(TwoLevelAllReduce, RefusesNodesWithoutRanks) {
  for (const int g : {0, -3})
    EXPECT_THAT(message_of([&] { two_level_all_reduce(all_reduce(4), 0, 2, g); }),
                testing::HasSubstr("ranks_per_node " + std::to_string(g)));
}

// Chunks [0,2) [2,5) [5,8) [8,11), the first of which goes round between two nodes in halves.
TEST(TwoLevelAllReduce, CutsAsChunkOfDoes) {
  EXPECT_EQ(pieces_sent(two_level_all_reduce(all_reduce(11), 0, 6, 4)),
            "[2,5) [5,8) [8,11) [0,1) [1,2) [0,2) [0,2) [0,2)")
      << "the pieces that the rank sends, in order, from their first element on";
}

// Of its chunks a rank has what each rank of its node sends; and what comes round between nodes.
TEST(TwoLevelAllReduce, DoesNotAskForFarMoreScratchThanItNeeds) {
  for_sizes_and_counts([](int p, std::int64_t n) {
    for (const int g : kNodes)
      expect_scratch(two_level(g), all_reduce(n), p, [&](int r) {
        const int h = std::min(g, p - r / g * g), mine = (g + h - 1) / h;
        return 2 * h * mine * ((n + g - 1) / g);
      });
  });
}

TEST(TwoLevelAllReduce, SendsCountsThatNoIntHolds) {
  for (const int p : {4, 6})
    EXPECT_EQ(elements_sent(two_level(4), all_reduce(kBeyondInt), p), 2 * (p - 1) * kBeyondInt)
        << "elements that all ranks send, more than an int holds";
}

// Links in the node are four times as fast to begin, and eight times as fast, as cards.
constexpr double kSlowAlpha = 4 * kAlpha, kSlowBeta = 8 * kBeta;
Network nodes_of(int g, int cards) {
  return {.link = exact::kFlat.link,
          .reduce_seconds_per_byte = kGamma,
          .ranks_per_node = g,
          .card = {.latency_seconds = kSlowAlpha, .seconds_per_byte = kSlowBeta},
          .cards_per_node = cards};
}

TEST(TwoLevelAllReduce, CountsOnACommunicatorWhatThePlansSay) {
  for (const int p : {1, 2, 3, 6, 8, 13})
    for (const int g : {1, 3, 4}) {
      expect_runs_as_planned(two_level(g), all_reduce(100), p);
      expect_runs_as_planned(two_level(g), all_reduce(100), p, nodes_of(g, 1));
    }
}

// Each rank sends 2 n / g (m - 1) / m to other nodes, all to its neighbour, and 2 n (g - 1) / g to
// its own.
TEST(TwoLevelAllReduce, SendsOneGthOfTheBufferBetweenNodes) {
  constexpr int g = 4, m = 3;
  constexpr std::int64_t n = 4 * 10 * g * m;
  const Counted found =
      expect_runs_as_planned(two_level(g), all_reduce(n / 4), g * m, nodes_of(g, g));
  for (int r = 0; r < g * m; ++r) {
    CommStats::Peer inside, across;
    for (const auto& [peer, sent] : found.stats[static_cast<std::size_t>(r)].peers) {
      const bool in_node = peer / g == r / g;
      EXPECT_TRUE(in_node || peer == (r + g) % (g * m)) << "rank " << r << " to " << peer;
      CommStats::Peer& sum = in_node ? inside : across;
      sum.messages += sent.messages;
      sum.wire_bytes += sent.wire_bytes;
    }
    EXPECT_EQ(across.messages, 2 * (m - 1)) << "rank " << r;
    EXPECT_EQ(across.wire_bytes, 2 * n / g * (m - 1) / m) << "rank " << r;
    EXPECT_EQ(inside.messages, 2 * (g - 1)) << "rank " << r;
    EXPECT_EQ(inside.wire_bytes, 2 * n * (g - 1) / g) << "rank " << r;
  }
}

// m full nodes of g; n bytes. In the node: twice g - 1 chunks behind each other, one latency each.
struct Nodes {
  int m, g;
  double n;
  double chunk() const { return n / g; }
  double part() const { return chunk() / m; }
  double in_node() const { return 2 * kAlpha + (g - 1) * chunk() * (2 * kBeta + kGamma); }
  double simulated(const PlanMaker& maker, int cards) const {
    const Collective call = call_of(CommOp::AllReduce, m * g, static_cast<std::int64_t>(n));
    return simulate(maker, call, m * g, nodes_of(g, cards)).seconds;
  }
};
std::vector<Nodes> sizes_of_nodes() {
  std::vector<Nodes> all;
  for (const int m : {2, 3, 4, 8})
    for (const int g : {2, 3, 4, 8})
      for (const double parts : {4, 64, 4096}) all.push_back({m, g, parts * m * g});
  return all;
}
std::string text(const Nodes& s) {
  return std::to_string(s.m) + " nodes of " + std::to_string(s.g) + ", " + std::to_string(s.n) +
         " bytes";
}

// A card for each rank: each ring has links of its own.
TEST(TwoLevelAllReduce, TakesTheTimeOfARingBetweenNodesWhereEachRankHasACard) {
  for (const Nodes& s : sizes_of_nodes()) {
    const double step = kSlowAlpha + s.part() * kSlowBeta;
    const double rings = (s.m - 1) * (2 * step + s.part() * kGamma);
    EXPECT_EQ(s.simulated(two_level(s.g), s.g), s.in_node() + rings) << text(s);
  }
}

// One card: g rings take turns on it, the first rank's message first. Then the next step of the
// first rank begins, as soon as its sum is made; the card is idle where that takes longer than the
// messages of the other ranks. Followed is the last rank of a node: its first message, one period
// for each later one; those after a sum have it in their period.
TEST(TwoLevelAllReduce, TakesTurnsOnTheOneCardOfANode) {
  for (const Nodes& s : sizes_of_nodes()) {
    const double alone = kSlowAlpha + s.part() * kSlowBeta, all = s.g * s.part() * kSlowBeta;
    const double rings = kSlowAlpha + all + (s.m - 1) * std::max(alone + s.part() * kGamma, all) +
                         (s.m - 2) * std::max(alone, all);
    EXPECT_EQ(s.simulated(two_level(s.g), 1), s.in_node() + rings) << text(s);
  }
}

// A ring over all ranks is as slow as its slowest edge, from node to node, in each of its 2 (p - 1)
// steps; and of g cards it uses one.
TEST(TwoLevelAllReduce, BeatsAFlatRingOverTheSameNetwork) {
  for (const Nodes& s : sizes_of_nodes()) {
    const int p = s.m * s.g;
    const double ring = (p - 1) * (2 * (kSlowAlpha + s.part() * kSlowBeta) + s.part() * kGamma);
    for (const int cards : {1, s.g})
      EXPECT_EQ(s.simulated(ring_all_reduce, cards), ring) << text(s);
    EXPECT_EQ(ring - s.simulated(two_level(s.g), s.g),
              2 * s.m * (s.g - 1) * (kSlowAlpha + s.part() * (kSlowBeta - kBeta)) - 2 * kAlpha)
        << text(s);
    EXPECT_LT(s.simulated(two_level(s.g), 1), ring) << text(s);
  }
}

TEST(TwoLevelAllReduce, TakesTheSameTimeOnACommunicator) {
  for (const Nodes& s : {Nodes{2, 2, 4096}, Nodes{3, 4, 4 * 12 * 64}, Nodes{4, 2, 4 * 8}})
    for (const int cards : {1, s.g})
      expect_runs_as_planned(two_level(s.g), all_reduce(static_cast<std::int64_t>(s.n) / 4),
                             s.m * s.g, nodes_of(s.g, cards));
}

}  // namespace
}  // namespace aisc::plan_runs
