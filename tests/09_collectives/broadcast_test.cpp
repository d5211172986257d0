// Broadcasts in pieces: how the pieces travel, how long that takes, and into how many to cut.
#include "09_collectives/broadcast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "common/core/rng.h"
#include "tests/09_collectives/plan_pieces.h"
#include "tests/09_collectives/run_plans.h"
#include "tests/support/drawn.h"

namespace aisc::plan_runs {
namespace {

PlanMaker chain(int segments) {
  return [segments](const Collective& c, int rank, int size) {
    return chain_broadcast(c, rank, size, segments);
  };
}

Total expect_all_have_the_roots(const PlanMaker& maker, int p, std::int64_t n, int root) {
  return run_call(CommOp::Broadcast, maker, p, n, root).total;
}

TEST(ChainBroadcast, CopiesTheRootsBuffer) {
  for (const int k : {1, 2, 3, 8, 40}) {
    SCOPED_TRACE(testing::Message() << k << " segments");
    for_sizes_counts_and_roots(
        [&](int p, std::int64_t n, int root) { expect_all_have_the_roots(chain(k), p, n, root); });
  }
  for_drawn_sizes("ChainBroadcast", 30, 3000, [](int p, std::int64_t n, int root) {
    const auto k = drawn("segments of ChainBroadcast" + std::to_string(n), 1, 60);
    SCOPED_TRACE(testing::Message() << k << " segments");
    expect_all_have_the_roots(chain(static_cast<int>(k)), p, n, root);
  });
}

// Rank 2 is the root, then come 0 and 1. Rank 0 passes a segment on while it receives the next.
TEST(ChainBroadcast, PassesSegmentsOnWorkedOutByHand) {
  struct Step {
    std::vector<std::pair<int, int>> sends, recvs;  // of elements [begin, end)
    bool operator==(const Step&) const = default;
  };
  const auto steps = [](int rank) {
    const Plan plan = chain_broadcast(broadcast(5, 2), rank, 3, 3);
    std::vector<Step> all;
    for (std::size_t s = 0; s < plan.steps(); ++s) {
      Step step;
      for (const PlanAction& a : plan.step(s)) {
        const bool is_send = a.kind == PlanAction::Kind::Send;
        const Piece& piece = is_send ? a.from : a.to;
        EXPECT_EQ(a.peer, is_send ? (rank + 1) % 3 : (rank + 2) % 3);
        EXPECT_EQ(piece.where, Where::Out);
        (is_send ? step.sends : step.recvs)
            .emplace_back(static_cast<int>(piece.begin),
                          static_cast<int>(piece.begin + piece.count));
      }
      all.push_back(step);
    }
    return all;
  };
  EXPECT_EQ(steps(2), (std::vector<Step>{{{{0, 1}}, {}}, {{{1, 3}}, {}}, {{{3, 5}}, {}}}))
      << "rank 2 of 3, root 2: what it sends and receives in each step, elements [begin, end)";
  EXPECT_EQ(steps(0),
            (std::vector<Step>{
                {{}, {{0, 1}}}, {{{0, 1}}, {{1, 3}}}, {{{1, 3}}, {{3, 5}}}, {{{3, 5}}, {}}}))
      << "rank 0 of 3, root 2: what it sends and receives in each step, elements [begin, end)";
  EXPECT_EQ(steps(1), (std::vector<Step>{{{}, {{0, 1}}}, {{}, {{1, 3}}}, {{}, {{3, 5}}}}))
      << "rank 1 of 3, root 2: what it sends and receives in each step, elements [begin, end)";
}

TEST(ChainBroadcast, EveryRankButTheLastSendsTheBufferOnce) {
  for (const int p : kSizes)
    for (const std::int64_t n : {0, 1, 5, 1000})
      for (const int k : {1, 2, 7, 100})
        for (int v = 0; v < p; ++v) {
          SCOPED_TRACE(testing::Message()
                       << "rank " << v << " of " << p << ", count " << n << ", segments " << k);
          const int root = p - 1;
          const Traffic t = traffic_of(chain(k)(broadcast(n, root), (root + v) % p, p));
          const std::int64_t pieces = std::min<std::int64_t>(n, k);  // that are not empty
          EXPECT_EQ(t.elements, v == p - 1 ? 0 : n) << "elements that the rank sends";
          EXPECT_EQ(t.messages, v == p - 1 ? 0 : pieces) << "messages that the rank sends";
          if (n >= k) {
            EXPECT_EQ(t.steps, p == 1                 ? 0
                               : v == 0 || v == p - 1 ? k
                                                      : k + 1)
                << "steps of the rank";
          }
        }
}

TEST(ChainBroadcast, AsksForNoScratch) {
  for_sizes_and_counts([](int p, std::int64_t n) {
    expect_scratch(chain(3), broadcast(n, p / 2), p, [](int) { return 0; });
  });
}

TEST(ChainBroadcast, SendsCountsThatNoIntHolds) {
  EXPECT_EQ(elements_sent(chain(7), broadcast(kBeyondInt, 1), 4), 3 * kBeyondInt)
      << "elements that all ranks send, more than an int holds";
}

TEST(ChainBroadcast, RunsAsPlannedOnThreads) {
  for (const int p : {1, 2, 3, 7, 16})
    for (const int k : {1, 3, 8}) expect_runs_as_planned(chain(k), broadcast(100, p / 2), p);
}

TEST(ChainBroadcast, TakesTheTimeOfItsFormulaFor2To64Ranks) {
  for (int p = 2; p <= 64; ++p)
    for (const int k : {1, 2, 3, 16, 100})
      for (const std::int64_t segment : {1, 256, 1024})
        EXPECT_EQ(simulated_seconds(chain(k), broadcast(k * segment, p / 2), p),
                  (p - 2 + k) * exact::message(static_cast<double>(segment)))
            << p << " ranks, " << k << " segments of " << segment;
  EXPECT_EQ(simulated_seconds(chain(4), broadcast(1000), 1), 0);
}

TEST(ChainBroadcast, RejectsLessThanOneSegment) {
  for (const int k : {0, -1})
    EXPECT_THAT(message_of([&] { (void)chain_broadcast(broadcast(10), 0, 4, k); }),
                testing::HasSubstr("chain_broadcast: " + std::to_string(k) + " segments"));
}

constexpr int kMost = 1 << 20;

double chain_seconds(int p, double bytes, const Link& link, double k) {
  return (p - 2 + k) * (link.latency_seconds + bytes / k * link.seconds_per_byte);
}

TEST(BestSegments, AreOfTheShortestTime) {
  const Philox random(test_seed(), "links of BestSegments");
  for (std::uint64_t run = 0; run < 300; ++run) {
    const int p = 3 + static_cast<int>(random.below(4 * run, 100));
    const double bytes = 1 + static_cast<double>(random.below(4 * run + 1, 10'000'000));
    const Link link{.latency_seconds = std::pow(10, -7 + 4 * random.uniform(4 * run + 2)),
                    .seconds_per_byte = std::pow(10, -11 + 3 * random.uniform(4 * run + 3))};
    const int k = best_segments(p, bytes, link);
    SCOPED_TRACE(testing::Message() << p << " ranks, " << bytes << " bytes, " << k << " segments");
    ASSERT_GE(k, 1);
    ASSERT_LE(k, bytes);
    const double seconds = chain_seconds(p, bytes, link, k);
    for (int other = 1; other < 100'000 && other <= bytes; other += 1 + other / 50)
      EXPECT_LE(seconds, chain_seconds(p, bytes, link, other)) << other;
    for (const int other : {k - 1, k + 1})
      if (other >= 1 && other <= bytes) {
        EXPECT_LE(seconds, chain_seconds(p, bytes, link, other)) << other;
      }
  }
}

// With p - 2 = 8, n b = 4 and a = 2 the root is 4: sqrt(8 * 4 / 2).
TEST(BestSegments, AreTheSquareRootOfTheFormula) {
  const Link link{.latency_seconds = 2, .seconds_per_byte = 0x1p-10};
  EXPECT_EQ(best_segments(10, 4096, link), 4)
      << "10 ranks, 4096 bytes: the best number of segments";
  EXPECT_EQ(best_segments(10, 4 * 4096, link), 8)
      << "10 ranks, 4 * 4096 bytes: the best number of segments";
  EXPECT_EQ(best_segments(34, 4096, link), 8)
      << "34 ranks, 4096 bytes: the best number of segments";
  EXPECT_EQ(best_segments(10, 4096, {8, 0x1p-10}), 2)
      << "10 ranks, 4096 bytes: the best number of segments";
}

// Between 1 and 2 lies sqrt(2) for p - 2 = 2, n b = 1, a = 1: (2 + 1) (1 + 1) = (2 + 2) (1 + 1/2).
TEST(BestSegments, AreTheFewerWhereTwoNumbersTakeTheSame) {
  EXPECT_EQ(best_segments(4, 1024, {1, 0x1p-10}), 1)
      << "4 ranks, 1024 bytes: the best number of segments";
}

// sqrt(2.1) is nearer to 1, but from where the root's square passes 1 * 2 on, 2 take less.
TEST(BestSegments, AreNotTheRootRounded) {
  EXPECT_EQ(best_segments(4, 1024 * 1.05, {1, 0x1p-10}), 2)
      << "4 ranks, 1024 * 1.05 bytes: the best number of segments";
  EXPECT_EQ(best_segments(4, 1024 * 0.95, {1, 0x1p-10}), 1)
      << "4 ranks, 1024 * 0.95 bytes: the best number of segments";
}

TEST(BestSegments, IsOneWhereNobodyIsInTheMiddleOrNothingTakesTime) {
  const Link link{.latency_seconds = 1e-6, .seconds_per_byte = 1e-9};
  EXPECT_EQ(best_segments(1, 1e9, link), 1) << "1 ranks, 1e9 bytes: the best number of segments";
  EXPECT_EQ(best_segments(2, 1e9, link), 1) << "2 ranks, 1e9 bytes: the best number of segments";
  EXPECT_EQ(best_segments(2, 1e9, {0, 1e-9}), 1)
      << "2 ranks, 1e9 bytes: the best number of segments";
  EXPECT_EQ(best_segments(9, 0, link), 1) << "9 ranks, 0 bytes: the best number of segments";
  EXPECT_EQ(best_segments(9, 0, {0, 1e-9}), 1) << "9 ranks, 0 bytes: the best number of segments";
  EXPECT_EQ(best_segments(9, 1e9, {1e-6, 0}), 1)
      << "9 ranks, 1e9 bytes: the best number of segments";
  EXPECT_EQ(best_segments(9, 1e9, {0, 0}), 1) << "9 ranks, 1e9 bytes: the best number of segments";
}

TEST(BestSegments, AreNoMoreThanAllowedNorThanBytes) {
  const Link link{.latency_seconds = 1e-9, .seconds_per_byte = 1};
  EXPECT_EQ(best_segments(9, 1e9, link), kMost)
      << "9 ranks, 1e9 bytes: the best number of segments";
  EXPECT_EQ(best_segments(9, 1e9, link, 100), 100)
      << "9 ranks, 1e9 bytes: the best number of segments";
  EXPECT_EQ(best_segments(9, 50, link, 100), 50)
      << "9 ranks, 50 bytes: the best number of segments";
  EXPECT_EQ(best_segments(9, 1, link), 1) << "9 ranks, 1 bytes: the best number of segments";
}

TEST(BestSegments, AreAsManyAsAllowedWhereMessagesHaveNoLatency) {
  const Link link{.latency_seconds = 0, .seconds_per_byte = 1e-9};
  EXPECT_EQ(best_segments(9, 1e9, link), kMost)
      << "9 ranks, 1e9 bytes: the best number of segments";
  EXPECT_EQ(best_segments(3, 1e9, link, 64), 64)
      << "3 ranks, 1e9 bytes: the best number of segments";
  EXPECT_EQ(best_segments(3, 12, link, 64), 12) << "3 ranks, 12 bytes: the best number of segments";
}

TEST(VanDeGeijn, CopiesTheRootsBuffer) {
  for_sizes_counts_and_roots([](int p, std::int64_t n, int root) {
    const Total total = expect_all_have_the_roots(van_de_geijn_broadcast, p, n, root);
    if (n >= p) {
      EXPECT_EQ(total.most.steps, p == 1 ? 0 : log2_ceil(p) + p - 1)
          << "steps of the rank that has most";
      EXPECT_EQ(total.rounds, total.most.steps) << "steps until the last rank is done";
    }
  });
}

TEST(VanDeGeijn, TheRootSendsLessThanTwiceItsBuffer) {
  for_sizes_counts_and_roots([](int p, std::int64_t n, int root) {
    for (int v = 0; v < p; ++v) {
      const Plan plan = van_de_geijn_broadcast(broadcast(n, root), (root + v) % p, p);
      const int ranks = v == 0 ? p : std::min(v & -v, p - v);  // of its subtree
      const std::int64_t down =
          (v + ranks) * n / p - (v + 1) * n / p;  // chunks v + 1 .. v + ranks - 1
      const std::int64_t round = v == p - 1 ? 0 : n - chunk_count(n, v + 1, p);
      EXPECT_EQ(traffic_of(plan).elements, down + round) << v;
      if (v == 0) {
        EXPECT_EQ(senders(plan), std::vector<int>()) << "the root has all";
      }
    }
  });
}

TEST(VanDeGeijn, AsksForNoScratch) {
  for_sizes_and_counts([](int p, std::int64_t n) {
    expect_scratch(van_de_geijn_broadcast, broadcast(n, p / 2), p, [](int) { return 0; });
  });
}

// Of four chunks 0 sends 3 and 2 sends one down the tree. Round, everyone but the last sends 3.
TEST(VanDeGeijn, SendsCountsThatNoIntHolds) {
  EXPECT_EQ(elements_sent(van_de_geijn_broadcast, broadcast(kBeyondInt, 1), 4),
            (3 + 1 + 3 * 3) * kBeyondInt / 4)
      << "elements that all ranks send, more than an int holds";
}

TEST(VanDeGeijn, RunsAsPlannedOnThreads) {
  for (const int p : {1, 2, 3, 6, 7, 16})
    for (const std::int64_t n : {3, 100})
      expect_runs_as_planned(van_de_geijn_broadcast, broadcast(n, p / 2), p);
}

TEST(VanDeGeijn, TakesTheTimeOfItsFormulaFor1To64Ranks) {
  for (int p = 1; p <= 64; ++p)
    for (const std::int64_t chunk : {1, 256, 1024})
      for (const int root : {0, p - 1})
        EXPECT_EQ(simulated_seconds(van_de_geijn_broadcast, broadcast(p * chunk, root), p),
                  (static_cast<double>(log2_ceil(p)) + p - 1) * exact::kAlpha +
                      2 * (p - 1) * exact::bytes(static_cast<double>(chunk)) * exact::kBeta)
            << p << " ranks, chunks of " << chunk;
}

}  // namespace
}  // namespace aisc::plan_runs
