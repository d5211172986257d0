// Times by hand; all costs are small integers or powers of two, so that == is right.
#include "05_pipeline/simulate.h"

#include <gtest/gtest.h>

#include <limits>

#include "tests/05_pipeline/written.h"
#include "tests/support/drawn.h"
#include "tests/support/error_says.h"
#include "tests/support/message_of.h"

namespace aisc {
namespace {

using written::one_by_one;
using written::same;
using written::schedule;
using written::two_by_turns;
using Times = std::vector<double>;

// Begins and ends of a rank's actions, one after the other.
Times times_of(const Simulation& s, std::size_t rank) {
  Times all;
  for (const TimedAction& a : s.ranks[rank].actions) {
    all.push_back(a.begin_seconds);
    all.push_back(a.end_seconds);
  }
  return all;
}
// The same of its messages.
Times messages_of(const Simulation& s, std::size_t rank) {
  Times all;
  for (const TimedMessage& m : s.ranks[rank].sent) {
    all.push_back(m.begin_seconds);
    all.push_back(m.arrives_seconds);
  }
  return all;
}

TEST(SimulateGiven, AllForwardsFirst) {
  const Simulation s = simulate(same(2, 2, "F0 F1 B0 B1"), {{.forward = 1, .backward = 2}});
  EXPECT_EQ(times_of(s, 0), (Times{0, 1, 1, 2, 5, 7, 7, 9}));
  EXPECT_EQ(times_of(s, 1), (Times{1, 2, 2, 3, 3, 5, 5, 7}));
  EXPECT_EQ(s.ranks[1].actions[2].action, (Action{ActionKind::Backward, 0}));
  EXPECT_EQ(s.total_seconds, 9);
  EXPECT_EQ(s.name, "written");
  for (const RankTimes& rank : s.ranks) {
    EXPECT_EQ(rank.busy_seconds, 6);
    EXPECT_EQ(rank.idle_seconds, 3) << "(p - 1)(tf + tb)";
    EXPECT_EQ(rank.most_in_flight, 2);
  }
  EXPECT_EQ(bubble_of_ideal(s), 1. / 2) << "(p - 1) / m";
  EXPECT_EQ(bubble_of_total(s), 1. / 3) << "(p - 1) / (m + p - 1)";
}

TEST(SimulateGiven, ByTurns) {
  const Simulation s = simulate(two_by_turns(), {{.forward = 1, .backward = 2}});
  EXPECT_EQ(times_of(s, 0), (Times{0, 1, 1, 2, 4, 6, 7, 9}));
  EXPECT_EQ(times_of(s, 1), (Times{1, 2, 2, 4, 4, 5, 5, 7}));
  EXPECT_EQ(s.total_seconds, 9);
  EXPECT_EQ(s.ranks[0].most_in_flight, 2);
  EXPECT_EQ(s.ranks[1].most_in_flight, 1);
}

TEST(SimulateGiven, OneMicroBatchAfterTheOtherIsThePipelineThatIsNone) {
  const auto m = static_cast<int>(drawn("micro-batches of Simulate", 1, 9));
  for (const int p : {1, 2, 3, 4, 7}) {
    const Simulation s = simulate(one_by_one(p, m), {{.forward = 3, .backward = 5}});
    EXPECT_EQ(s.total_seconds, m * p * 8);
    EXPECT_EQ(bubble_of_ideal(s), p - 1);
    EXPECT_EQ(bubble_of_total(s), (p - 1.) / p);
    for (const RankTimes& rank : s.ranks) EXPECT_EQ(rank.idle_seconds, m * (p - 1) * 8);
  }
}

// The example of the header.
TEST(SimulateGiven, MessagesArriveLater) {
  const Simulation s =
      simulate(one_by_one(2, 1), {{.forward = 1, .backward = 2}}, {.latency_seconds = 1});
  EXPECT_EQ(times_of(s, 0), (Times{0, 1, 6, 8}));
  EXPECT_EQ(times_of(s, 1), (Times{2, 3, 3, 5}));
  EXPECT_EQ(messages_of(s, 0), (Times{1, 2}));
  EXPECT_EQ(messages_of(s, 1), (Times{5, 6}));
}

// 4 bytes take 2 seconds, a forward 1: the second message waits for the first one's last byte, not
// for its latency; and rank 0 goes on meanwhile.
TEST(SimulateGiven, MessagesOfALinkFollowOneAnother) {
  const Simulation s = simulate(same(2, 3, "F0 F1 F2 B0 B1 B2"), {{.forward = 1, .backward = 4}},
                                {.latency_seconds = 0.5, .seconds_per_byte = 0.5, .bytes = 4});
  EXPECT_EQ(messages_of(s, 0), (Times{1, 3.5, 3, 5.5, 5, 7.5}));
  EXPECT_EQ(times_of(s, 1),
            (Times{3.5, 4.5, 5.5, 6.5, 7.5, 8.5, 8.5, 12.5, 12.5, 16.5, 16.5, 20.5}));
  EXPECT_EQ(messages_of(s, 1), (Times{12.5, 15, 16.5, 19, 20.5, 23}));
  EXPECT_EQ(times_of(s, 0), (Times{0, 1, 1, 2, 2, 3, 15, 19, 19, 23, 23, 27}));
  EXPECT_EQ(s.ranks[0].sent[1].action, (Action{ActionKind::Forward, 1}));
  EXPECT_EQ(s.ranks[0].sent[1].to, 1);
}

// Rank 0 sends rank 1 both: activations of stage 2 to stage 3, gradients of stage 2 to stage 1.
TEST(SimulateGiven, ForwardAndBackwardDoNotWaitForEachOther) {
  const auto simulated = [](const std::string& first, const std::string& second) {
    return simulate(schedule(2, {first, second}, round_robin(2, 2)),
                    {{.forward = 1, .backward = 1}}, {.seconds_per_byte = 1, .bytes = 3});
  };
  const Simulation s = simulated("F0.0 F1.0 F0.1 F1.1 B0.1 B1.1 B0.0 B1.0",
                                 "F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 B0.0 B1.0");
  // F0.0 and F1.0 of rank 0 are there at 4 and 7, those of rank 1 back at 8 and 11, F0.1 and F1.1
  // leave at 9 and 12; rank 1 has done B0.1 at 14, and F1.1 is there at 15.
  EXPECT_EQ(messages_of(s, 0), (Times{1, 4, 4, 7, 9, 12, 12, 15, 18, 21, 21, 24}));
  EXPECT_EQ(messages_of(s, 1), (Times{5, 8, 8, 11, 14, 17, 17, 20, 22, 25, 25, 28}));
  const Simulation slow = simulated("F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 B0.0 B1.0",
                                    "F0.0 F0.1 B0.1 F1.0 F1.1 B1.1 B0.0 B1.0");
  // Its fourth message is B0.1's and begins when this is over; its fifth is F1.1's.
  const RankTimes& rank = slow.ranks[0];
  EXPECT_EQ(rank.sent[3].begin_seconds, rank.actions[3].end_seconds);
  EXPECT_EQ(rank.sent[4].begin_seconds, rank.actions[4].end_seconds);
  EXPECT_LT(rank.sent[4].begin_seconds, rank.sent[3].arrives_seconds);
}

// Rank 1 sends forward to rank 2 on the way down and to rank 0 on the way up.
TEST(SimulateGiven, EachReceiverHasALinkOfItsOwn) {
  const std::string list = "F0.0 F0.1 F1.0 F1.1 B0.1 B1.1 B0.0 B1.0";
  const Simulation s =
      simulate(schedule(2, {"F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 B0.0 B1.0", list, list}, down_and_up(3)),
               {{.forward = 1, .backward = 1}}, {.seconds_per_byte = 1, .bytes = 3});
  // Of F0.0, F0.1 and F1.0: the last begins to leave while the second is on its way.
  const Times all = messages_of(s, 1);
  EXPECT_EQ(Times(all.begin(), all.begin() + 6), (Times{5, 8, 14, 17, 15, 18}));
  EXPECT_EQ(s.ranks[1].sent[1].to, 0);
  EXPECT_EQ(s.ranks[1].sent[2].to, 2);
}

TEST(SimulateGiven, CountsMessagesAndBytes) {
  const LinkCosts link{.bytes = 100};
  const Simulation s = simulate(same(3, 2, "F0 F1 B0 B1"), {{.forward = 1}}, link);
  const std::vector<std::vector<std::int64_t>> expected{{2, 0}, {2, 2}, {0, 2}};
  for (std::size_t rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(s.ranks[rank].forward.messages, expected[rank][0]) << "rank " << rank;
    EXPECT_EQ(s.ranks[rank].forward.bytes, 100 * expected[rank][0]) << "rank " << rank;
    EXPECT_EQ(s.ranks[rank].backward.messages, expected[rank][1]) << "rank " << rank;
    EXPECT_EQ(s.ranks[rank].backward.bytes, 100 * expected[rank][1]) << "rank " << rank;
    EXPECT_EQ(static_cast<std::int64_t>(s.ranks[rank].sent.size()),
              expected[rank][0] + expected[rank][1]);
  }
}

// Rank 1 hands stage 1's result to its own stage 2 at once.
TEST(SimulateGiven, NothingIsSentWithinARank) {
  const std::string list = "F0.0 F0.1 B0.1 B0.0";
  const Simulation s = simulate(schedule(1, {list, list}, down_and_up(2)),
                                {{.forward = 1, .backward = 2}}, {.latency_seconds = 10});
  EXPECT_EQ(times_of(s, 1), (Times{11, 12, 12, 13, 36, 38, 38, 40}));
  EXPECT_EQ(times_of(s, 0), (Times{0, 1, 23, 24, 24, 26, 50, 52}));
  EXPECT_EQ(s.ranks[1].forward.messages, 1);
  EXPECT_EQ(s.ranks[1].backward.messages, 1);
  const Simulation alone = simulate(schedule(1, {list}, round_robin(1, 2)),
                                    {{.forward = 1, .backward = 2}}, {.latency_seconds = 10});
  EXPECT_EQ(alone.total_seconds, 6);
  EXPECT_EQ(alone.chunks, 2);
  EXPECT_EQ(alone.ranks[0].sent.size(), 0);
  EXPECT_EQ(alone.ranks[0].idle_seconds, 0);
}

TEST(SimulateGiven, EachStageHasItsCosts) {
  const Simulation s = simulate(schedule(1, {"F0.0 F0.1 B0.1 U0.1 B0.0 U0.0"}, round_robin(1, 2)),
                                {{.forward = 1, .backward = 2, .update = 0.5},
                                 {.forward = 10, .backward = 20, .update = 0.25}});
  EXPECT_EQ(times_of(s, 0), (Times{0, 1, 1, 11, 11, 31, 31, 31.25, 31.25, 33.25, 33.25, 33.75}));
  EXPECT_EQ(s.ranks[0].busy_seconds, 33.75);
}

TEST(SimulateGiven, WeightGradientsByThemselvesOrInBackward) {
  const std::vector<ActionCosts> costs{{.forward = 1, .backward = 2, .weight_gradient = 4}};
  EXPECT_EQ(times_of(simulate(same(1, 1, "F0 B0 W0"), costs), 0), (Times{0, 1, 1, 3, 3, 7}));
  EXPECT_EQ(times_of(simulate(same(1, 1, "F0 B0"), costs), 0), (Times{0, 1, 1, 7}));
  // Rank 0 has B0's gradient before rank 1 does W0.
  const Simulation s = simulate(same(2, 1, "F0 B0 W0"), costs);
  EXPECT_EQ(times_of(s, 0), (Times{0, 1, 4, 6, 6, 10}));
  EXPECT_EQ(times_of(s, 1), (Times{1, 2, 2, 4, 4, 8}));
}

// Where ranks have not the same to do, the bubble is that of all together.
TEST(SimulateGiven, BubbleOfUnequalStages) {
  const Simulation s = simulate(one_by_one(2, 1), {{.forward = 1}, {.forward = 3}});
  EXPECT_EQ(s.total_seconds, 4);
  EXPECT_EQ(s.ranks[0].idle_seconds, 3);
  EXPECT_EQ(s.ranks[1].idle_seconds, 1);
  EXPECT_EQ(bubble_of_ideal(s), 1);
  EXPECT_EQ(bubble_of_total(s), 0.5);
}

TEST(SimulateGiven, NothingTakesTime) {
  const Simulation s = simulate(one_by_one(2, 1), {{}});
  EXPECT_EQ(s.total_seconds, 0);
  EXPECT_EQ(bubble_of_ideal(s), 0);
  EXPECT_EQ(bubble_of_total(s), 0);
}

TEST(SimulateGiven, RanksThatWaitForEachOther) {
  EXPECT_EQ(message_of([] {
              simulate(schedule(2, {"F0 B0 F1 B1", "F1 B1 F0 B0"}), {{.forward = 1}});
            }),
            "written: ranks 0 -> 1 -> 0 wait for each other: rank 0 cannot begin B0 before rank 1 "
            "has done B0; rank 1 cannot begin F1 before rank 0 has done F1");
  // Rank 0 asks for the others first, and is not in the circle.
  EXPECT_EQ(
      message_of([] {
        simulate(schedule(2, {"F0 F1 B0 B1", "F0 B0 F1 B1", "F1 B1 F0 B0"}), {{.forward = 1}});
      }),
      "written: ranks 1 -> 2 -> 1 wait for each other: rank 1 cannot begin B0 before rank 2 "
      "has done B0; rank 2 cannot begin F1 before rank 1 has done F1");
  EXPECT_EQ(
      message_of([] {
        simulate(schedule(1, {"F0.1 F0.0 B0.1 B0.0"}, round_robin(1, 2)), {{.forward = 1}});
      }),
      "written: rank 0 waits for itself: rank 0 cannot begin F0.1 before rank 0 has done F0.0");
}

TEST(SimulateGiven, BadInput) {
  EXPECT_EQ(message_of([] { simulate(same(1, 1, "F0"), {{}}); }), "written: rank 0: B0 is missing");
  EXPECT_TRUE(error_says(
      [] {
        simulate(one_by_one(3, 1), {{}, {}});
      },
      {"written", "costs of 2 stages", "1 for all or 3 expected"}));
  EXPECT_TRUE(error_says(
      [] {
        simulate(one_by_one(2, 1), {{}, {.backward = -1}});
      },
      {"stage 1", "-1 seconds", "at least 0"}));
  EXPECT_TRUE(error_says(
      [] { simulate(one_by_one(2, 1), {{.update = std::numeric_limits<double>::quiet_NaN()}}); },
      {"stage 0", "nan seconds", "at least 0"}));
  for (const LinkCosts& link : {LinkCosts{.latency_seconds = -1}, LinkCosts{.seconds_per_byte = -1},
                                LinkCosts{.bytes = -1}})
    EXPECT_TRUE(error_says([&] { simulate(one_by_one(2, 1), {{}}, link); },
                           {"written: link of", "-1", "at least 0"}));
}

}  // namespace
}  // namespace aisc
