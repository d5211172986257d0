// The sum in the switch: values, traffic, time, and what it saves against a ring.
#include "09_collectives/in_network.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/09_collectives/run_plans.h"

namespace aisc::plan_runs {
namespace {

constexpr Link kLink{.latency_seconds = exact::kAlpha, .seconds_per_byte = exact::kBeta};

PlanMaker pieces(int segments) {
  return [=](const Collective& c, int rank, int size) {
    return in_network_all_reduce(c, rank, size, segments);
  };
}

// `ranks` ranks and the switch, whose own buffer is poison: all end with the sum of the ranks.
Total expect_sums_of_ranks(int ranks, std::int64_t count, int segments) {
  SCOPED_TRACE(testing::Message() << ranks << " ranks, " << count << " in " << segments);
  const auto plans = plans_of(pieces(segments), all_reduce(count), ranks + 1);
  auto memory = each_of(ranks + 1, [&](int r) {
    Memory m = inout(r, count);
    if (r == ranks) m.values.assign(m.values.size(), kPoison);
    return m;
  });
  const Total total = run(plans, memory);
  expect_outs(memory, [&](int, auto i) { return sum(ranks, i); });
  return total;
}

TEST(InNetworkAllReduce, SumsWhatTheRanksHaveButNotWhatTheSwitchHas) {
  for_sizes_and_counts([](int ranks, std::int64_t count) {
    for (const int segments : {1, 2, 3, 8}) expect_sums_of_ranks(ranks, count, segments);
  });
  expect_sums_of_ranks(static_cast<int>(drawn("ranks of InNetworkAllReduce", 1, 100)),
                       drawn("elements of InNetworkAllReduce", 500, 2000),
                       static_cast<int>(drawn("segments of InNetworkAllReduce", 2, 20)));
}

// Two ranks and the switch, two segments of two elements.
TEST(InNetworkAllReduce, SumsOverTwoRanksAsWorkedOutByHand) {
  const auto text = [](int rank) {
    return in_network_all_reduce(all_reduce(4), rank, 3, 2).to_string();
  };
  EXPECT_EQ(text(1),
            "in-network all_reduce: 3 steps, scratch 0\n"
            "step  action  peer  piece\n"
            "   0  send       2  out[0, 2)\n"
            "   1  send       2  out[2, 4)\n"
            "      recv       2  out[0, 2)\n"
            "   2  recv       2  out[2, 4)\n");
  EXPECT_EQ(text(2),
            "in-network all_reduce: 3 steps, scratch 2\n"
            "step  action  peer  piece\n"
            "   0  recv       0  out[0, 2)\n"
            "      recv       1  scratch[0, 2)\n"
            "      reduce        out[0, 2) <- scratch[0, 2)\n"
            "   1  send       0  out[0, 2)\n"
            "      recv       0  out[2, 4)\n"
            "      send       1  out[0, 2)\n"
            "      recv       1  scratch[0, 2)\n"
            "      reduce        out[2, 4) <- scratch[0, 2)\n"
            "   2  send       0  out[2, 4)\n"
            "      send       1  out[2, 4)\n");
}

TEST(InNetworkAllReduce, AddsInTheOrderOfTheRanks) {
  constexpr int ranks = 7;
  for (const int segments : {1, 6})
    EXPECT_EQ(expect_same_bits(pieces(segments), ranks + 1), added_in_order(ranks));
}

TEST(InNetworkAllReduce, SendsEachBufferOnceAndEachSumOnce) {
  for (const int ranks : {1, 2, 3, 8, 33})
    for (const int k : {1, 4}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, " << k << " segments");
      const std::int64_t n = 12 * k;
      const auto plans = plans_of(pieces(k), all_reduce(n), ranks + 1);
      for (int r = 0; r <= ranks; ++r) {
        const Traffic t = traffic_of(plans[static_cast<std::size_t>(r)]);
        const bool is_switch = r == ranks;
        EXPECT_EQ(t.steps, k + 1) << "steps of the rank";
        EXPECT_EQ(t.messages, is_switch ? k * ranks : k) << "messages that the rank sends";
        EXPECT_EQ(t.elements, is_switch ? n * ranks : n) << "elements that the rank sends";
        EXPECT_EQ(t.added, is_switch ? n * (ranks - 1) : 0) << "elements that the rank adds";
      }
      EXPECT_EQ(expect_sums_of_ranks(ranks, n, k).rounds, k + 1);
    }
}

TEST(InNetworkAllReduce, LeavesOutEmptySegments) {
  for (const std::int64_t count : {0, 1, 3})
    EXPECT_EQ(expect_sums_of_ranks(4, count, 16).most.messages, 4 * count);
}

// ---- seconds

constexpr std::int64_t kPiece = 256;  // elements

double seconds_of(int ranks, int k) {
  const Collective c = call_of(CommOp::AllReduce, ranks + 1, 4 * k * kPiece);
  return simulate(pieces(k), c, ranks + 1, in_network(ranks, kLink)).seconds;
}

TEST(InNetworkAllReduce, TakesTheTimeOfItsFormulaForUpTo64Ranks) {
  for (int ranks = 1; ranks <= 64; ++ranks)
    for (const int k : {1, 2, 3, 8, 21})
      ASSERT_EQ(seconds_of(ranks, k), (k + 1) * exact::message(kPiece))
          << ranks << " ranks, " << k << " segments";
}

TEST(InNetworkAllReduce, TakesTheSameTimeOnACommunicator) {
  constexpr int k = 3;
  for (const int ranks : {1, 2, 5, 8}) {
    SCOPED_TRACE(testing::Message() << ranks << " ranks");
    LaunchOptions options{.ranks = ranks + 1, .network = in_network(ranks, kLink)};
    options.plans[CommOp::AllReduce] = pieces(k);
    const auto times = exact::end_times(options, [&](Rank rank) {
      const Tensor x = exact::f32(rank, k * kPiece);
      for (std::int64_t i = 0; i < x.count(); ++i)
        x.data<float>()[i] = static_cast<float>(rank.world.rank() + i % 5);
      rank.world.all_reduce(x).wait();
      for (std::int64_t i = 0; i < x.count(); ++i)
        ASSERT_EQ(x.data<float>()[i],
                  static_cast<float>(ranks * (ranks - 1) / 2 + ranks * (i % 5)));
      EXPECT_EQ(rank.world.stats().steps, k + 1);
      if (rank.world.rank() < ranks) {
        EXPECT_EQ(rank.world.stats().sent().messages, k);
        EXPECT_EQ(rank.world.stats().sent().wire_bytes, 4 * k * kPiece);
      }
    });
    EXPECT_EQ(times, std::vector<double>(times.size(), (k + 1) * exact::message(kPiece)));
  }
}

// A ring takes 2 (p - 1) a + 2 n (p - 1) / p b on the same links. Of a long buffer in many segments
// the switch takes little more than n b, p / (2 (p - 1)) of it; of a few bytes, two latencies.
TEST(InNetworkAllReduce, TakesHalfTheTimeOfARing) {
  constexpr int ranks = 16, k = 256;
  const Network flat{.link = kLink};
  const auto ring = [&](std::int64_t bytes) {
    return simulate(ring_all_reduce, call_of(CommOp::AllReduce, ranks, bytes), ranks, flat).seconds;
  };
  const auto in_switch = [&](std::int64_t bytes, int segments) {
    return simulate(pieces(segments), call_of(CommOp::AllReduce, ranks + 1, bytes), ranks + 1,
                    in_network(ranks, kLink))
        .seconds;
  };
  constexpr std::int64_t kLong = std::int64_t{1} << 30, kShort = 4;
  const double ratio = in_switch(kLong, k) / ring(kLong), limit = ranks / (2.0 * (ranks - 1));
  EXPECT_GT(ratio, limit);
  EXPECT_LT(ratio, 1.005 * limit);  // 1 / k more, and latencies
  EXPECT_EQ(in_switch(kShort, 1), 2 * exact::message(1));
}

// ---- the network

// When a message of 1024 bytes arrives that was sent at 0, beside others.
double arrival(const Network& network, int ranks, std::vector<std::pair<int, int>> messages) {
  const PlanMaker maker = [&](const Collective& c, int rank, int) {
    Plan plan{.name = "messages"};
    for (const auto& [from, to] : messages) {
      if (from == rank) plan.send(to, {Where::Out, 0, c.call.count});
      if (to == rank) plan.recv(from, {Where::Scratch, plan.scratch_count, c.call.count});
      if (to == rank) plan.scratch_count += c.call.count;
    }
    plan.end_step();
    return plan;
  };
  return simulate(maker, call_of(CommOp::AllReduce, ranks, 1024), ranks, network).seconds;
}

TEST(InNetwork, HasACableForEachRankThatWorksBothWays) {
  const Network network = in_network(3, kLink);
  network.check(4);
  EXPECT_EQ(network.wire_seconds_per_byte, std::vector<double>(6, exact::kBeta));
  EXPECT_EQ(network.reduce_seconds_per_byte, 0);
  EXPECT_EQ(network.link.latency_seconds, kLink.latency_seconds);
  EXPECT_EQ(network.link.seconds_per_byte, kLink.seconds_per_byte);
  const double one = exact::message(256), two = one + exact::bytes(256) * exact::kBeta;
  EXPECT_EQ(arrival(network, 4, {{0, 3}, {1, 3}, {2, 3}, {3, 0}, {3, 1}, {3, 2}}), one);
  EXPECT_EQ(arrival(network, 4, {{0, 1}}), one);  // both cables at once
  EXPECT_EQ(arrival(network, 4, {{0, 1}, {1, 2}, {2, 0}}), one);
  EXPECT_EQ(arrival(network, 4, {{0, 1}, {2, 1}}), two);  // cable of 1
  EXPECT_EQ(arrival(network, 4, {{0, 1}, {0, 3}}), two);  // cable of 0
}

TEST(InNetworkAllReduce, RefusesWhatMakesNoSense) {
  const Collective c = all_reduce(8);
  EXPECT_EQ(message_of([&] { in_network_all_reduce(c, 0, 4, 0); }),
            "in_network_all_reduce: 0 segments, at least 1 expected");
  EXPECT_EQ(message_of([&] { in_network_all_reduce(c, 0, 1, 1); }),
            "in_network_all_reduce: 1 ranks, at least 2 expected: the last is the switch");
  EXPECT_EQ(message_of([] { in_network(0, kLink); }), "in_network: 0 ranks, at least 1 expected");
}

}  // namespace
}  // namespace aisc::plan_runs
