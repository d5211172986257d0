// Time that is computed: what messages, overlap and shared network cards cost, exactly.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/exact_network.h"

namespace aisc::exact {
namespace {

// Of two ranks, where 0 sends to 1, each from its time on: when they were over.
std::vector<double> times_of_message(double send_at, double recv_at) {
  return end_times({.ranks = 2}, [&](Rank rank) {
    rank.clock.advance(rank.world.rank() == 0 ? send_at : recv_at);
    if (rank.world.rank() == 0) rank.world.send(f32(rank, 256), 1).wait();
    if (rank.world.rank() == 1) rank.world.recv(f32(rank, 256), 0).wait();
  });
}

TEST(VirtualTime, MessageTakesAlphaAndBetaOnBothSides) {
  EXPECT_EQ(times_of_message(0, 0), (std::vector<double>{message(256), message(256)}));
}

TEST(VirtualTime, LateReceiverPaysNothingExtra) {
  EXPECT_EQ(times_of_message(0, 8), (std::vector<double>{message(256), 8}));
}

TEST(VirtualTime, LateSenderDelaysTheReceiver) {
  EXPECT_EQ(times_of_message(8, 0), (std::vector<double>{8 + message(256), 8 + message(256)}));
}

TEST(VirtualTime, LinksWorkInBothDirectionsAtOnce) {
  const auto times = end_times({.ranks = 2}, [](Rank rank) {
    const int other = 1 - rank.world.rank();
    const Transfer both[] = {
        {.in = f32(rank, 256), .to = other, .out = f32(rank, 256), .from = other}};
    rank.world.exchange(both).wait();
  });
  EXPECT_EQ(times, (std::vector<double>{message(256), message(256)}));
}

TEST(VirtualTime, MessagesToOneRankTakeTurnsOnItsLink) {
  const auto times = end_times({.ranks = 3}, [](Rank rank) {
    if (rank.world.rank() != 0) return rank.world.send(f32(rank, 256), 0).wait();
    const Transfer recvs[] = {{.out = f32(rank, 256), .from = 2},
                              {.out = f32(rank, 256), .from = 1}};
    rank.world.exchange(recvs).wait();
  });
  EXPECT_EQ(times[0], kAlpha + 2 * bytes(256) * kBeta);
}

TEST(VirtualTime, ComputeBesideAnAllReduceTakesTheMaximum) {
  const double ring = 2 * message(256) + bytes(256) * kGamma;  // 2 ranks, 512 elements
  for (const double compute : {0.5 * ring, ring, 4.0 * ring}) {
    const auto times = end_times({.ranks = 2}, [&](Rank rank) {
      Work sum = rank.world.all_reduce(f32(rank, 512));
      rank.clock.advance(compute);
      sum.wait();
    });
    EXPECT_EQ(times, std::vector<double>(2, std::max(compute, ring)));
  }
}

TEST(VirtualTime, TwoCommunicatorsOverlapAndOneDoesNot) {
  const double ring = 2 * message(256) + bytes(256) * kGamma;
  const auto times = [](int communicators) {
    std::array<double, 2> took{};
    end_times({.ranks = 2}, [&](Rank rank) {
      const auto side = rank.world.split(0, 0, "side");
      rank.clock.advance_to(1024);
      Work first = rank.world.all_reduce(f32(rank, 512));
      Communicator& other = communicators == 2 ? *side : rank.world;
      Work second = other.all_reduce(f32(rank, 512));
      first.wait();
      second.wait();
      took[static_cast<std::size_t>(rank.world.rank())] = rank.clock.now() - 1024;
    });
    return took;
  };
  EXPECT_EQ(times(2), (std::array{ring, ring}));
  EXPECT_EQ(times(1), (std::array{2 * ring, 2 * ring}));
}

TEST(VirtualTime, WaitAnyReturnsTheEarliestWhateverTheSchedulerDoes) {
  const auto times = end_times({.ranks = 3}, [](Rank rank) {
    if (rank.world.rank() == 0) {
      std::array<Work, 2> works{rank.world.recv(f32(rank, 256), 1),
                                rank.world.recv(f32(rank, 256), 2)};
      EXPECT_EQ(wait_any(works), 1U);
      EXPECT_EQ(rank.clock.now(), 2 + message(256));
      EXPECT_EQ(wait_any(works), 1U);  // empty now: over at once
      works[0].wait();
    } else {
      // Rank 2 is the later one on the wall, and the earlier in virtual time.
      if (rank.world.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(20));
      rank.clock.advance(rank.world.rank() == 1 ? 8 : 2);
      rank.world.send(f32(rank, 256), 0).wait();
    }
  });
  EXPECT_EQ(times[0], 8 + message(256));
}

TEST(VirtualTime, WorkIsDoneFromTheTimeOfItsCompletionOn) {
  const double ring = 2 * message(256) + bytes(256) * kGamma;
  end_times({.ranks = 2}, [&](Rank rank) {
    Work sum = rank.world.all_reduce(f32(rank, 512));
    EXPECT_FALSE(sum.done());
    rank.clock.advance(ring - 0x1p-30);
    EXPECT_FALSE(sum.done());
    rank.clock.advance(0x1p-30);
    EXPECT_TRUE(sum.done());
    sum.wait();
    EXPECT_EQ(rank.clock.now(), ring);
  });
}

// Two nodes of two ranks. A message of 256 elements between nodes needs kCard.
Network nodes(int cards) {
  return {.link = kFlat.link,
          .reduce_seconds_per_byte = kGamma,
          .ranks_per_node = 2,
          .card = {.latency_seconds = 4 * kAlpha, .seconds_per_byte = 8 * kBeta},
          .cards_per_node = cards};
}
constexpr double kCardLatency = 4 * kAlpha, kCardBytes = 1024 * 8 * kBeta;

// Ranks 0 and 1 send to 2 and 3, from these times on; returns when each rank was over.
std::vector<double> across_nodes(int cards, double first, double second) {
  return end_times({.ranks = 4, .network = nodes(cards)}, [&](Rank rank) {
    const int me = rank.world.rank();
    if (me == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    if (me < 2) rank.clock.advance(me == 0 ? first : second);
    if (me < 2) rank.world.send(f32(rank, 256), me + 2).wait();
    if (me >= 2) rank.world.recv(f32(rank, 256), me - 2).wait();
  });
}

TEST(Nodes, MessagesThatShareACardTakeTurnsInOrderOfRank) {
  const auto times = across_nodes(1, 0, 0);
  EXPECT_EQ(times[2], kCardLatency + kCardBytes);
  EXPECT_EQ(times[3], kCardLatency + 2 * kCardBytes);
}

TEST(Nodes, MessagesThatShareACardPassInOrderOfSending) {
  const auto times = across_nodes(1, kAlpha, 0);
  EXPECT_EQ(times[3], kCardLatency + kCardBytes);
  EXPECT_EQ(times[2], kCardLatency + 2 * kCardBytes);
}

// The case of four ranks by which world_wait.cpp explains what happens next.
TEST(Nodes, QuestionIsAnsweredWhenNothingEarlierCanHappen) {
  for (const int asks_at : {4, 2}) {
    const auto times = end_times({.ranks = 4, .network = nodes(1)}, [&](Rank rank) {
      const int me = rank.world.rank();
      if (me == 1) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      rank.clock.advance(kCardLatency * std::array{5, 3, 0, asks_at}[static_cast<std::size_t>(me)]);
      if (me < 2) return rank.world.send(f32(rank, 256), me + 2).wait();
      Work received = rank.world.recv(f32(rank, 256), me - 2);
      if (me == 3) {
        EXPECT_FALSE(received.done());
      }
      received.wait();
    });
    ASSERT_EQ(kCardBytes, 2 * kCardLatency);
    EXPECT_EQ(times, (std::vector{8 * kCardLatency, 6 * kCardLatency, 8 * kCardLatency,
                                  6 * kCardLatency}));
  }
}

TEST(Nodes, MessagesThatDoNotShareACardDoNotWait) {
  const auto times = across_nodes(2, 0, 0);
  EXPECT_EQ(times[2], kCardLatency + kCardBytes);
  EXPECT_EQ(times[3], kCardLatency + kCardBytes);
}

TEST(Nodes, CardIsFreeAgainWhenTheBytesHavePassed) {
  const auto times = across_nodes(1, 0, 8);
  EXPECT_EQ(times[2], kCardLatency + kCardBytes);
  EXPECT_EQ(times[3], 8 + kCardLatency + kCardBytes);
}

TEST(Nodes, CardsWorkInBothDirectionsAtOnce) {
  const auto times = end_times({.ranks = 4, .network = nodes(1)}, [](Rank rank) {
    const int me = rank.world.rank();
    if (me == 0 || me == 3) rank.world.send(f32(rank, 256), (me + 2) % 4).wait();
    if (me == 1 || me == 2) rank.world.recv(f32(rank, 256), (me + 2) % 4).wait();
  });
  EXPECT_EQ(times, std::vector<double>(4, kCardLatency + kCardBytes));
}

// Ranks 0 and 2, on nodes of their own, send to node 2: its card takes one after the other.
TEST(Nodes, MessagesFromTwoNodesTakeTurnsOnTheReceiversCard) {
  const auto times = end_times({.ranks = 6, .network = nodes(1)}, [](Rank rank) {
    const int me = rank.world.rank();
    if (me == 0 || me == 2) rank.world.send(f32(rank, 256), me / 2 + 4).wait();
    if (me == 4 || me == 5) rank.world.recv(f32(rank, 256), (me - 4) * 2).wait();
  });
  EXPECT_EQ(times[4], kCardLatency + kCardBytes);
  EXPECT_EQ(times[5], kCardLatency + 2 * kCardBytes);
}

// Two messages of a group, one by itself, and a collective's, which goes to rank 2 first.
TEST(Nodes, MessagesOfOneRankAndTimePassInOrderOfIssue) {
  std::vector<double> received(4);
  const auto times = end_times({.ranks = 4, .network = nodes(1)}, [&](Rank rank) {
    const int me = rank.world.rank();
    std::vector<Work> messages;
    if (me == 0) {
      const Transfer both[] = {{.in = f32(rank, 256), .to = 3}, {.in = f32(rank, 256), .to = 3}};
      messages.push_back(rank.world.exchange(both));
      messages.push_back(rank.world.send(f32(rank, 256), 2));
    }
    for (int i = 2; i <= me; ++i) messages.push_back(rank.world.recv(f32(rank, 256), 0));
    Work all = rank.world.broadcast(f32(rank, 256), 0);
    for (Work& work : messages) work.wait();
    received[static_cast<std::size_t>(me)] = rank.clock.now();
    all.wait();
  });
  EXPECT_EQ(received[3], kCardLatency + 2 * kCardBytes);
  EXPECT_EQ(received[2], kCardLatency + 3 * kCardBytes);
  EXPECT_EQ(received[0], kCardLatency + 3 * kCardBytes);
  EXPECT_EQ(times[2], kCardLatency + 4 * kCardBytes + message(256));  // which it passes on to 3
}

TEST(Nodes, MessagesInsideANodeUseNoCard) {
  const auto times = end_times({.ranks = 4, .network = nodes(1)}, [](Rank rank) {
    const int me = rank.world.rank(), other = me ^ 1;
    const Transfer both[] = {
        {.in = f32(rank, 256), .to = other, .out = f32(rank, 256), .from = other}};
    rank.world.exchange(both).wait();
  });
  EXPECT_EQ(times, std::vector<double>(4, message(256)));
}

// The ranks of a split keep their nodes: {1, 2} are neighbours in the group, not on a node.
TEST(Nodes, GroupsKnowWhereTheirRanksAre) {
  const auto times = end_times({.ranks = 4, .network = nodes(1)}, [](Rank rank) {
    const int me = rank.world.rank();
    const auto middle = rank.world.split(me == 1 || me == 2 ? 0 : -1, me, "middle");
    rank.clock.advance_to(1024);
    if (me == 1) middle->send(f32(rank, 256), 1).wait();
    if (me == 2) middle->recv(f32(rank, 256), 0).wait();
  });
  EXPECT_EQ(times[2], 1024 + kCardLatency + kCardBytes);
}

// Everything at once, on ranks that sleep at random on the wall.
void busy_body(Rank rank, unsigned seed) {
  const int me = rank.world.rank(), size = rank.world.size();
  std::mt19937 random(seed * 100 + static_cast<unsigned>(me));
  const auto doze = [&] { std::this_thread::sleep_for(std::chrono::microseconds(random() % 300)); };
  const auto half = rank.world.split(me % 2, me, "half");
  for (int step = 0; step < 3; ++step) {
    doze();
    Work sum = rank.world.all_reduce(f32(rank, 100));
    doze();
    Work gathered = half->all_gather(f32(rank, 30), f32(rank, 30 * half->size()));
    rank.clock.advance(kAlpha * (me + step));
    std::vector<Work> recvs;
    for (int other = 0; other < size; ++other)
      recvs.push_back(rank.world.recv(f32(rank, 9), other));
    std::vector<Work> sends;
    for (int other = 0; other < size; ++other) {
      doze();
      sends.push_back(rank.world.send(f32(rank, 9), (me + other) % size));
    }
    while (!recvs.empty()) {
      doze();
      const auto index = static_cast<std::ptrdiff_t>(wait_any(recvs));
      recvs.erase(recvs.begin() + index);
      rank.clock.advance(kAlpha * static_cast<double>(index));
    }
    for (Work& send : sends) send.wait();
    gathered.wait();
    rank.world.barrier();
    sum.wait();
  }
}

TEST(VirtualTime, SixteenRunsLeaveTheSameTraces) {
  const auto traces = [](unsigned seed) {
    std::vector<std::string> texts(6);
    launch({.ranks = 6, .network = nodes(1), .record_trace = true}, [&](Rank rank) {
      busy_body(rank, seed);
      std::string& text = texts[static_cast<std::size_t>(rank.world.rank())];
      for (const TraceEvent& event : rank.trace.events())
        text += event.name + " " + std::to_string(event.begin_seconds / kGamma) + " " +
                std::to_string(event.end_seconds / kGamma) + "\n";
      text += std::to_string(rank.clock.now() / kGamma);
    });
    return texts;
  };
  const std::vector<std::string> first = traces(0);
  EXPECT_NE(first[0].find("all_reduce"), std::string::npos) << first[0];
  for (unsigned run = 1; run < 16; ++run) EXPECT_EQ(traces(run), first) << "run " << run;
}

}  // namespace
}  // namespace aisc::exact
