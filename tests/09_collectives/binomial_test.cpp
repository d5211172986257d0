// Binomial trees: who sends to whom, what arrives, and when.
#include "09_collectives/binomial.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "tests/09_collectives/plan_pieces.h"
#include "tests/09_collectives/run_plans.h"

namespace aisc::plan_runs {
namespace {

// Of v counted from the root: its subtree, of which it is a part, and its children.
int subtree(int v, int p) { return v == 0 ? p : std::min(v & -v, p - v); }
std::vector<int> children(int v, int p) {  // the smallest first
  std::vector<int> found;
  for (int w = v + 1; w < p; ++w)
    if ((w & (w - 1)) == v) found.push_back(w);
  return found;
}

// Each sender's receivers in order, for p ranks of which `root` is the first.
std::vector<std::vector<int>> edges(const PlanMaker& maker, CommOp op, int p, int root) {
  return each_of(p, [&](int r) { return receivers(maker(call(op, 4, root), r, p)); });
}

void expect_broadcasts(int p, std::int64_t n, int root) {
  const Total total = run_call(CommOp::Broadcast, binomial_broadcast, p, n, root).total;
  EXPECT_EQ(total.rounds, n > 0 ? log2_ceil(p) : 0) << "steps until the last rank is done";
  EXPECT_EQ(total.sum.elements, n * (p - 1))
      << "elements that all ranks send together";  // nobody receives it twice
}

TEST(BinomialBroadcast, SendsToTheFarthestFirst) {
  using Edges = std::vector<std::vector<int>>;
  EXPECT_EQ(edges(binomial_broadcast, CommOp::Broadcast, 8, 0),
            (Edges{{4, 2, 1}, {}, {3}, {}, {6, 5}, {}, {7}, {}}))
      << "8 ranks, root 0: to whom each rank sends, in order";
  EXPECT_EQ(edges(binomial_broadcast, CommOp::Broadcast, 6, 0),
            (Edges{{4, 2, 1}, {}, {3}, {}, {5}, {}}))
      << "6 ranks, root 0: to whom each rank sends, in order";
  EXPECT_EQ(edges(binomial_broadcast, CommOp::Broadcast, 6, 4),
            (Edges{{1}, {}, {3}, {}, {2, 0, 5}, {}}))
      << "6 ranks, root 4: to whom each rank sends, in order";
}

TEST(BinomialBroadcast, CopiesTheRootsBuffer) {
  for_sizes_counts_and_roots(expect_broadcasts);
  for_drawn_sizes("BinomialBroadcast", 40, 3000, expect_broadcasts);
}

TEST(BinomialBroadcast, TheRootSendsInEachOfLog2PStepsAndNobodyMore) {
  for (const int p : kSizes)
    for (int root = 0; root < p; ++root)
      for (int r = 0; r < p; ++r) {
        SCOPED_TRACE(testing::Message() << "rank " << r << " of " << p << ", root " << root);
        const int v = (r - root + p) % p;
        const Traffic t = traffic_of(binomial_broadcast(broadcast(10, root), r, p));
        const auto sent = std::ssize(children(v, p));
        EXPECT_EQ(t.messages, sent) << "messages that the rank sends";
        EXPECT_EQ(t.elements, 10 * sent) << "elements that the rank sends";
        EXPECT_EQ(t.steps, v == 0 ? sent : sent + 1) << "steps of the rank";
        if (v == 0) {
          EXPECT_EQ(sent, log2_ceil(p)) << "messages that the root sends";
        }
      }
}

TEST(BinomialBroadcast, AsksForNoScratch) {
  for_sizes_counts_and_roots([](int p, std::int64_t n, int root) {
    expect_scratch(binomial_broadcast, broadcast(n, root), p, [](int) { return 0; });
  });
}

TEST(BinomialBroadcast, SendsCountsThatNoIntHolds) {
  EXPECT_EQ(elements_sent(binomial_broadcast, broadcast(kBeyondInt, 4), 6), 5 * kBeyondInt)
      << "elements that all ranks send, more than an int holds";
}

TEST(BinomialBroadcast, RunsAsPlannedOnThreads) {
  for (const int p : {1, 2, 3, 6, 7, 16})
    for (const int root : {0, p / 2, p - 1})
      expect_runs_as_planned(binomial_broadcast, broadcast(100, root), p);
}

TEST(BinomialBroadcast, TakesTheTimeOfItsFormulaFor1To64Ranks) {
  for (int p = 1; p <= 64; ++p)
    for (const std::int64_t n : {1, 256, 65'536})
      for (const int root : {0, p - 1})
        EXPECT_EQ(simulated_seconds(binomial_broadcast, broadcast(n, root), p),
                  static_cast<double>(log2_ceil(p)) * exact::message(static_cast<double>(n)))
            << p << " ranks, count " << n << ", root " << root;
}

Collective scatter(std::int64_t chunk, int root = 0) { return call(CommOp::Scatter, chunk, root); }

// In the root's subtrees, counted round, chunks may end at the last rank and go on at rank 0.
bool packs(int p, int root) {
  for (const int w : children(0, p))
    if (root + w < p && root + w + subtree(w, p) > p) return true;
  return false;
}

void expect_scatters(int p, std::int64_t chunk, int root) {
  const Total total = run_call(CommOp::Scatter, binomial_scatter, p, chunk, root).total;
  if (chunk > 0) {
    EXPECT_EQ(total.most.messages, log2_ceil(p)) << "messages of the rank that sends most";
  }
  EXPECT_EQ(total.most.elements, (p - 1) * chunk) << "elements sent by the rank that sends most";
}

TEST(BinomialScatter, SendsToTheFarthestFirst) {
  using Edges = std::vector<std::vector<int>>;
  EXPECT_EQ(edges(binomial_scatter, CommOp::Scatter, 6, 0),
            (Edges{{4, 2, 1}, {}, {3}, {}, {5}, {}}))
      << "6 ranks, root 0: to whom each rank sends, in order";
  EXPECT_EQ(edges(binomial_scatter, CommOp::Scatter, 6, 4),
            (Edges{{1}, {}, {3}, {}, {2, 0, 5}, {}}))
      << "6 ranks, root 4: to whom each rank sends, in order";
}

// v = 0 .. 4 are ranks 2, 3, 4, 0, 1: the chunks of v = 2 and 3, ranks 4 and 0, lie apart at the
// root. v = 4 gets one chunk first, then v = 2 two, then v = 1 its own.
TEST(BinomialScatter, GivesFiveRanksTheirChunksWorkedOutByHand) {
  const Collective c = scatter(1, 2);
  auto memory = each_of(5, [](int r) {
    return r == 2 ? Memory{{10, 11, 12, 13, 14, 0}, {0, 5}, {5, 1}} : Memory{{0}, {}, {0, 1}};
  });
  const auto plans = plans_of(binomial_scatter, c, 5);
  run(plans, memory);
  expect_outs(memory, [](int r, auto) { return 10 + r; });
  EXPECT_EQ(receivers(plans[2]), (std::vector<int>{1, 4, 3})) << "to whom rank 2 sends, in order";
  EXPECT_EQ(receivers(plans[4]), (std::vector<int>{0})) << "to whom rank 4 sends, in order";
  EXPECT_EQ(traffic_of(plans[2]).elements, 4) << "elements that rank 2 sends";
  EXPECT_EQ(traffic_of(plans[4]).elements, 1) << "elements that rank 4 sends";
}

TEST(BinomialScatter, GivesEveryRankItsChunk) {
  for_sizes_counts_and_roots(expect_scatters);
  for_drawn_sizes("BinomialScatter", 40, 100, expect_scatters);
}

TEST(BinomialScatter, EveryRankSendsOnWhatIsForItsSubtree) {
  constexpr std::int64_t chunk = 10;
  for (const int p : kSizes)
    for (int root = 0; root < p; ++root)
      for (int r = 0; r < p; ++r) {
        SCOPED_TRACE(testing::Message() << "rank " << r << " of " << p << ", root " << root);
        const int v = (r - root + p) % p;
        const Traffic t = traffic_of(binomial_scatter(scatter(chunk, root), r, p));
        const auto sent = std::ssize(children(v, p));
        EXPECT_EQ(t.messages, sent) << "messages that the rank sends";
        EXPECT_EQ(t.elements, (subtree(v, p) - 1) * chunk) << "elements that the rank sends";
        if (v != 0) {
          EXPECT_EQ(t.steps, sent + 1) << "steps of the rank";
        } else if (p > 1) {  // who packs does that first
          EXPECT_EQ(t.steps, packs(p, root) ? sent + 1 : sent) << "steps of the rank";
        }
      }
}

// Leaves have their chunk where the call wants it.
TEST(BinomialScatter, DoesNotAskForFarMoreScratchThanItNeeds) {
  for_sizes_counts_and_roots([](int p, std::int64_t chunk, int root) {
    expect_scratch(binomial_scatter, scatter(chunk, root), p, [&](int r) {
      const int ranks = subtree((r - root + p) % p, p);
      return ranks == 1 ? 0 : ranks * chunk;
    });
  });
}

// Of v = 0 .. 5, 0 sends five chunks, and 2 and 4 send one each.
TEST(BinomialScatter, SendsCountsThatNoIntHolds) {
  for (const int root : {0, 4})
    EXPECT_EQ(elements_sent(binomial_scatter, scatter(kBeyondInt, root), 6), 7 * kBeyondInt)
        << "elements that all ranks send, more than an int holds";
}

TEST(BinomialScatter, RunsAsPlannedOnThreads) {
  for (const int p : {1, 2, 3, 6, 7, 16})
    for (const int root : {0, p / 2, p - 1})
      expect_runs_as_planned(binomial_scatter, scatter(100, root), p);
}

double down_a_tree_seconds(int p, std::int64_t chunk) {
  return static_cast<double>(log2_ceil(p)) * exact::kAlpha +
         exact::bytes(static_cast<double>((p - 1) * chunk)) * exact::kBeta;
}

TEST(BinomialScatter, TakesTheTimeOfItsFormulaFor1To64Ranks) {
  for (int p = 1; p <= 64; ++p)
    for (const std::int64_t chunk : {1, 256, 4096})
      for (const int root : {0, p / 2, p - 1})
        EXPECT_EQ(simulated_seconds(binomial_scatter, scatter(chunk, root), p),
                  down_a_tree_seconds(p, chunk))
            << p << " ranks, chunks of " << chunk << ", root " << root;
}

Collective gather(std::int64_t chunk, int root = 0) { return call(CommOp::Gather, chunk, root); }

TEST(BinomialGather, GivesTheRootAllChunks) {
  expect_done(CommOp::Gather, binomial_gather, [](const Ran&) {});
}

TEST(BinomialGather, EveryRankSendsItsSubtreesChunksInOneMessage) {
  constexpr std::int64_t chunk = 10;
  for (const int p : kSizes)
    for (int root = 0; root < p; ++root)
      for (int r = 0; r < p; ++r) {
        SCOPED_TRACE(testing::Message() << "rank " << r << " of " << p << ", root " << root);
        const int v = (r - root + p) % p;
        const Plan plan = binomial_gather(gather(chunk, root), r, p);
        const Traffic t = traffic_of(plan);
        std::vector<int> expected = children(v, p);  // the nearest first
        for (int& w : expected) w = (w + root) % p;
        EXPECT_EQ(senders(plan), expected) << "the ranks that it receives from, in order";
        EXPECT_EQ(t.elements, v == 0 ? 0 : subtree(v, p) * chunk) << "elements that the rank sends";
        EXPECT_EQ(t.messages, v == 0 ? 0 : 1) << "messages that the rank sends";
        if (p > 1) {
          EXPECT_EQ(t.steps, std::ssize(expected) + (v == 0 ? 0 : 1)) << "steps of the rank";
        }
      }
}

TEST(BinomialGather, RunsAsPlannedOnThreads) {
  for (const int p : {1, 2, 3, 6, 7, 16})
    for (const int root : {0, p / 2, p - 1})
      expect_runs_as_planned(binomial_gather, gather(100, root), p);
}

TEST(BinomialGather, TakesTheTimeOfAScatterForPowersOfTwoAndNoMoreForOthers) {
  for (int p = 1; p <= 64; ++p)
    for (const std::int64_t chunk : {1, 256, 4096})
      for (const int root : {0, p - 1}) {
        SCOPED_TRACE(testing::Message() << p << " ranks, chunks of " << chunk);
        const double seconds = simulated_seconds(binomial_gather, gather(chunk, root), p);
        EXPECT_LE(seconds, down_a_tree_seconds(p, chunk)) << "seconds, beside those of a scatter";
        if (std::has_single_bit(static_cast<unsigned>(p))) {
          EXPECT_EQ(seconds, down_a_tree_seconds(p, chunk)) << "seconds, beside those of a scatter";
        }
      }
}

// v = 1 and v = 2 send at 0: the second message waits for the link in only.
TEST(BinomialGather, OfThreeRanksTheSecondMessageCostsNoLatency) {
  EXPECT_EQ(simulated_seconds(binomial_gather, gather(256), 3),
            exact::kAlpha + 2 * exact::bytes(256) * exact::kBeta);
}

}  // namespace
}  // namespace aisc::plan_runs
