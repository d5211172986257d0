// Time without ranks: the same as the communicator's virtual time, to the last bit, on links, cards
// and wires.
#include "common/comm/simulate.h"

#include <gtest/gtest.h>

#include "tests/comm/timed_calls.h"
#include "tests/support/message_of.h"

namespace aisc::exact {
namespace {

struct Case {
  const char* name;
  CommOp op;
  PlanMaker maker;
};

std::vector<Case> cases() {
  return {{"ring all_reduce", CommOp::AllReduce, ring_all_reduce},
          {"tree all_reduce", CommOp::AllReduce, tree_all_reduce},
          {"direct all_reduce", CommOp::AllReduce, direct_all_reduce},
          {"recursive doubling all_reduce", CommOp::AllReduce, recursive_doubling_all_reduce},
          {"tree reduce", CommOp::Reduce, tree_reduce},
          {"ring reduce_scatter", CommOp::ReduceScatter, ring_reduce_scatter},
          {"ring all_gather", CommOp::AllGather, ring_all_gather},
          {"direct gather", CommOp::Gather, direct_gather},
          {"direct scatter", CommOp::Scatter, direct_scatter},
          {"broadcast in pieces", CommOp::Broadcast, scatter_all_gather_broadcast},
          {"pairwise all_to_all", CommOp::AllToAll, pairwise_all_to_all},
          {"barrier", CommOp::Barrier, dissemination_barrier}};
}

void expect_same_times(int ranks, const Network& network) {
  for (const Case& c : cases())
    for (const std::int64_t elements : {0, 1, 24}) {
      const Collective its_call = call_of(c.op, ranks, 4 * elements * ranks);
      SCOPED_TRACE(testing::Message() << c.name << ", " << ranks << " ranks, " << elements);
      LaunchOptions options{.ranks = ranks, .network = network};
      options.plans[c.op] = c.maker;
      const auto times = end_times(options, [&](Rank rank) { call(rank, its_call); });
      const Simulated simulated = simulate(c.maker, its_call, ranks, network);
      EXPECT_EQ(simulated.end_seconds, times);
      EXPECT_EQ(simulated.seconds, *std::max_element(times.begin(), times.end()));
    }
}

TEST(Simulate, TakesTheCommunicatorsTimeOnAFlatNetwork) {
  for (const int ranks : {1, 2, 3, 5, 8, 13}) expect_same_times(ranks, kFlat);
}

TEST(Simulate, TakesTheCommunicatorsTimeOnNodesThatShareCards) {
  Network network = kFlat;
  network.ranks_per_node = 3;
  network.card = {.latency_seconds = 5 * kAlpha, .seconds_per_byte = 3 * kBeta};
  for (const int cards : {1, 2}) {
    network.cards_per_node = cards;
    for (const int ranks : {4, 6, 8}) expect_same_times(ranks, network);
  }
}

// Ranks in a row, wires between neighbours, each way one.
Network row_of(int ranks) {
  Network network{.reduce_seconds_per_byte = kGamma};
  for (int r = 0; r + 1 < ranks; ++r)
    for (int way = 0; way < 2; ++way) network.wire_seconds_per_byte.push_back((1 + r) * kBeta);
  for (int a = 0; a < ranks; ++a)
    for (int b = 0; b < ranks; ++b) {
      Network::Route route{.latency_seconds = kAlpha};
      for (int r = std::min(a, b); r < std::max(a, b); ++r)
        route.wires.push_back(2 * r + (a < b ? 0 : 1));
      network.routes.push_back(route);
    }
  return network;
}

TEST(Simulate, TakesTheCommunicatorsTimeOnWires) {
  for (const int ranks : {2, 3, 5}) expect_same_times(ranks, row_of(ranks));
}

TEST(Simulate, CountsAndShowsMessages) {
  std::vector<SimulatedMessage> seen;
  const Simulated all = simulate(ring_all_gather, call_of(CommOp::AllGather, 3, 4 * 3 * 256), 3,
                                 kFlat, [&](const SimulatedMessage& m) { seen.push_back(m); });
  EXPECT_EQ(all.messages, 3 * 2);
  EXPECT_EQ(all.bytes, 3 * 2 * 1024);
  ASSERT_EQ(seen.size(), 6u);
  for (const SimulatedMessage& m : seen) {
    EXPECT_EQ(m.to, (m.from + 1) % 3);
    EXPECT_EQ(m.bytes, 1024);
    EXPECT_EQ(m.arrived_seconds, m.sent_seconds + message(256));
  }
}

TEST(Simulate, NamesRanksThatWaitForEver) {
  const PlanMaker maker = [](const Collective&, int rank, int size) {
    Plan plan{.name = "a ring without a beginning"};
    plan.await((rank + size - 1) % size);
    plan.end_step();
    plan.signal((rank + 1) % size);
    plan.end_step();
    return plan;
  };
  EXPECT_EQ(message_of([&] { simulate(maker, call_of(CommOp::Barrier, 3, 0), 3, kFlat); }),
            "simulate: a ring without a beginning: wait for ever: ranks 0 (step 0), 1 (step 0), 2 "
            "(step 0)");
}

TEST(Simulate, NamesMessagesWhoseSidesDisagree) {
  const PlanMaker maker = [](const Collective&, int rank, int) {
    Plan plan{.name = "wrong"};
    const Piece piece{.where = Piece::Where::Out, .begin = 0, .count = 1 + rank};
    rank == 0 ? plan.send(1, piece) : plan.recv(0, piece);
    plan.end_step();
    return plan;
  };
  EXPECT_EQ(message_of([&] { simulate(maker, call_of(CommOp::Broadcast, 2, 64), 2, kFlat); }),
            "simulate: wrong, step 0 of rank 1: expects 8 bytes, rank 0 sends 4");
}

TEST(Simulate, RefusesNonsense) {
  EXPECT_EQ(
      message_of([] { simulate(ring_all_reduce, call_of(CommOp::AllReduce, 1, 4), 0, kFlat); }),
      "simulate: 0 ranks, at least 1 expected");
  EXPECT_EQ(message_of([] { call_of(CommOp::AllGather, 3, 16); }),
            "call_of: all_gather of 16 bytes, a multiple of 12 expected");
  const PlanMaker far = [](const Collective&, int, int) {
    Plan plan{.name = "far"};
    plan.signal(7);
    plan.end_step();
    return plan;
  };
  EXPECT_EQ(message_of([&] { simulate(far, call_of(CommOp::Barrier, 2, 0), 2, kFlat); }),
            "simulate: far, rank 0, step 0: rank 7, there are 2");
}

TEST(Networks, RefuseRoutesThatAreNone) {
  Network network = row_of(3);
  EXPECT_EQ(message_of([&] { network.check(2); }),
            "network: 9 routes, 4 expected, from each of 2 ranks to each");
  network.routes[5].wires = {9};
  EXPECT_EQ(message_of([&] { network.check(3); }),
            "network: wire 9 on the route from rank 1 to rank 2, there are 4");
  network = {.ranks_per_node = -1};
  EXPECT_EQ(message_of([&] { network.check(3); }),
            "network: ranks_per_node -1, 0 (flat) or more expected");
}

}  // namespace
}  // namespace aisc::exact
