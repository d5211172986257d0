// All-to-all along rails: values, who sends what to whom, and the time on a network whose cards of
// equal number share a switch, and in which all other messages between nodes pass one spine.
#include "09_collectives/rails.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "tests/09_collectives/plan_pieces.h"
#include "tests/09_collectives/run_plans.h"

namespace aisc::plan_runs {
namespace {

using exact::kAlpha, exact::kBeta;

PlanMaker rails(int g) {
  return [g](const Collective& c, int rank, int size) { return rail_all_to_all(c, rank, size, g); };
}

// m nodes of g ranks.
Total run_all_to_all(int m, int g, std::int64_t c) {
  SCOPED_TRACE(testing::Message() << m << " nodes of " << g << ", count " << c);
  return run_call(CommOp::AllToAll, rails(g), m * g, c).total;
}

TEST(RailAllToAll, TransposesChunksOverRanks) {
  for (const int m : {1, 2, 3, 4, 7})
    for (const int g : {1, 2, 3, 4, 8})
      for (const std::int64_t c : {0, 1, 5, 100}) run_all_to_all(m, g, c);
  run_all_to_all(static_cast<int>(drawn("nodes of RailAllToAll", 2, 9)),
                 static_cast<int>(drawn("ranks per node of RailAllToAll", 2, 9)),
                 drawn("elements of RailAllToAll", 1, 100));
}

// In the node a rank gives each other n / g, along the rail each other node n / m.
TEST(RailAllToAll, SendsOneMessageToEachRankOfTheNodeAndOfTheRail) {
  for (const int m : {1, 2, 3, 4, 7})
    for (const int g : {1, 2, 3, 4, 8}) {
      const Total total = run_all_to_all(m, g, 10);
      const std::int64_t n = 10 * m * g;
      EXPECT_EQ(total.most.messages, (g - 1) + (m - 1)) << "messages of the rank that sends most";
      EXPECT_EQ(total.rounds, (g - 1) + (m - 1)) << "steps until the last rank is done";
      EXPECT_EQ(total.most.steps, 1 + (g - 1) + (m - 1))
          << "steps of the rank that has most";  // the first packs
      EXPECT_EQ(total.most.elements, n / g * (g - 1) + n / m * (m - 1))
          << "elements sent by the rank that sends most";
      EXPECT_EQ(total.sum.elements, m * g * total.most.elements)
          << "elements that all ranks send together";
      EXPECT_EQ(total.sum.added, 0) << "elements that all ranks add together";
    }
}

// Three nodes of two: rank 0 gives rank 1 what is for 1, 3 and 5; then it sends rank 2, and 4, what
// ranks 0 and 1 have for it.
TEST(RailAllToAll, GoesToTheRailInTheNodeAndThenAlongTheRail) {
  const auto text = [](int rank) {
    return sends_of(rail_all_to_all(call(CommOp::AllToAll, 10), rank, 6, 2));
  };
  EXPECT_EQ(text(0), "1: 30 | 2: 20 | 4: 20");
  EXPECT_EQ(text(3), "2: 30 | 5: 20 | 1: 20");
  EXPECT_EQ(text(5), "4: 30 | 1: 20 | 3: 20");
}

// Two nodes of two.
TEST(RailAllToAll, TransposesByHand) { expect_transposes_by_hand(rails(2), 4); }

TEST(RailAllToAll, RefusesWhatItCannotDo) {
  const auto refusal = [](CommOp op, int size, int g) {
    return message_of([&] { rail_all_to_all(call(op, 1), 0, size, g); });
  };
  using testing::HasSubstr;
  EXPECT_THAT(refusal(CommOp::AllToAll, 4, 0), HasSubstr("ranks_per_node 0"));
  EXPECT_THAT(refusal(CommOp::AllToAll, 4, -2), HasSubstr("ranks_per_node -2"));
  EXPECT_THAT(refusal(CommOp::AllToAll, 6, 4), HasSubstr("6 ranks"));
  EXPECT_THAT(refusal(CommOp::AllToAll, 6, 4), HasSubstr("ranks_per_node 4"));
  EXPECT_THAT(refusal(CommOp::AllToAllV, 4, 2), HasSubstr("all_to_all_v"));
}

// What goes and what comes.
TEST(RailAllToAll, DoesNotAskForFarMoreScratchThanItNeeds) {
  for (const int m : {1, 2, 3, 7})
    for (const int g : {1, 2, 3, 8})
      for (const std::int64_t c : {0, 1, 100})
        expect_scratch(rails(g), call(CommOp::AllToAll, c), m * g,
                       [&](int) { return 4 * m * g * c; });
}

// Three nodes of two: three chunks in the node, two to each of two others.
TEST(RailAllToAll, SendsCountsThatNoIntHolds) {
  EXPECT_EQ(elements_sent(rails(2), call(CommOp::AllToAll, kBeyondInt), 6),
            6 * (3 + 2 * 2) * kBeyondInt)
      << "elements that all ranks send, more than an int holds";
}

// Wires out and in: of each GPU to its node's switch, of its card to the switch of its rail, and of
// each node, one for all that crosses rails, to the spine. A message is as fast as the slowest.
constexpr double kCardAlpha = 4 * kAlpha, kCardBeta = 4 * kBeta;
constexpr double kSpineAlpha = 8 * kAlpha, kSpineBeta = 8 * kBeta;
Network rail_network(int m, int g) {
  const int p = m * g;
  const auto gpu = [](int r) { return 2 * r; };  // out; in is the next
  const auto card = [&](int r) { return 2 * (p + r); };
  const auto spine = [&](int r) { return 2 * (2 * p + r / g); };
  const auto ranks = static_cast<std::size_t>(p), nodes = static_cast<std::size_t>(m);
  Network network;
  network.wire_seconds_per_byte.assign(2 * ranks, kBeta);
  network.wire_seconds_per_byte.resize(4 * ranks, kCardBeta);
  network.wire_seconds_per_byte.resize(4 * ranks + 2 * nodes, kSpineBeta);
  for (int a = 0; a < p; ++a)
    for (int b = 0; b < p; ++b) {
      if (a / g == b / g)
        network.routes.push_back({kAlpha, {gpu(a), gpu(b) + 1}});
      else if (a % g == b % g)
        network.routes.push_back({kCardAlpha, {card(a), card(b) + 1}});
      else
        network.routes.push_back({kSpineAlpha, {card(a), spine(a), spine(b) + 1, card(b) + 1}});
    }
  return network;
}

double simulated(const PlanMaker& maker, int m, int g, std::int64_t chunk_bytes) {
  const int p = m * g;
  return simulate(maker, call_of(CommOp::AllToAll, p, p * chunk_bytes), p, rail_network(m, g))
      .seconds;
}

TEST(RailAllToAll, CrossesNoRails) {
  constexpr int m = 3, g = 4, p = m * g;
  constexpr std::int64_t n = 4 * 10 * p;
  const Counted found =
      expect_runs_as_planned(rails(g), call_of(CommOp::AllToAll, p, n), p, rail_network(m, g));
  for (int r = 0; r < p; ++r)
    for (const auto& [peer, sent] : found.stats[static_cast<std::size_t>(r)].peers) {
      const bool in_node = peer / g == r / g;
      EXPECT_TRUE(in_node || peer % g == r % g) << "rank " << r << " sends to " << peer;
      EXPECT_EQ(sent.messages, 1) << "rank " << r << " to " << peer;
      EXPECT_EQ(sent.wire_bytes, in_node ? n / g : n / m) << "rank " << r << " to " << peer;
    }
}

// No two messages ever share a wire.
TEST(RailAllToAll, TakesTheTimeOfItsTwoPhases) {
  for (const int m : {1, 2, 3, 4, 8})
    for (const int g : {1, 2, 3, 4, 8})
      for (const std::int64_t chunk : {4, 256, 4096}) {
        const auto z = static_cast<double>(chunk);
        EXPECT_EQ(simulated(rails(g), m, g, chunk),
                  (g - 1) * (kAlpha + m * z * kBeta) + (m - 1) * (kCardAlpha + g * z * kCardBeta))
            << m << " nodes of " << g << ", chunks of " << chunk;
      }
}

// Direct, two nodes of two. To the right: 1 to 2 and 3 to 0 cross rails, each alone on its spine,
// and all wait for them; then all go along their rail; then 0 to 3 and 2 to 1 cross.
TEST(RailAllToAll, BeatsDirectMessagesOverTwoNodesOfTwo) {
  for (const std::int64_t chunk : {4, 256, 4096}) {
    const auto z = static_cast<double>(chunk);
    const double direct = 2 * (kSpineAlpha + z * kSpineBeta) + (kCardAlpha + z * kCardBeta);
    EXPECT_EQ(simulated(pairwise_all_to_all, 2, 2, chunk), direct);
    const double by_rails = (kAlpha + 2 * z * kBeta) + (kCardAlpha + 2 * z * kCardBeta);
    EXPECT_EQ(simulated(rails(2), 2, 2, chunk), by_rails);
    EXPECT_LT(by_rails, direct);
  }
}

// Direct, a node's spine alone needs longer than both phases: it passes what g ranks have for the
// g - 1 other rails of m - 1 nodes.
TEST(RailAllToAll, BeatsTheSpineThatDirectMessagesPass) {
  for (const int m : {2, 3, 4, 8})
    for (const int g : {3, 4, 8}) {
      constexpr std::int64_t kChunk = 65536;
      const double spine = g * (g - 1) * (m - 1) * kChunk * kSpineBeta;
      EXPECT_GE(simulated(pairwise_all_to_all, m, g, kChunk), spine) << m << " nodes of " << g;
      EXPECT_LT(simulated(rails(g), m, g, kChunk), spine) << m << " nodes of " << g;
    }
}

TEST(RailAllToAll, CountsOnACommunicatorWhatThePlansSay) {
  for (const auto& [m, g] : {std::pair(1, 1), std::pair(2, 2), std::pair(3, 2), std::pair(2, 4)}) {
    const Collective c = call(CommOp::AllToAll, 12);
    expect_runs_as_planned(rails(g), c, m * g, rail_network(m, g));
    expect_runs_as_planned(rails(g), c, m * g);
  }
}

}  // namespace
}  // namespace aisc::plan_runs
