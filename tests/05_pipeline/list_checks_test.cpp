// What is known of lists without running them: complete or not, what hands over to what, what is in
// flight; and what a circle of ranks is called.
#include "05_pipeline/list_checks.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "05_pipeline/check.h"
#include "tests/05_pipeline/written.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

using written::same;
using written::schedule;
using written::two_by_turns;
using Texts = std::vector<std::string>;

TEST(CheckGiven, HandoversByHand) {
  const Schedule s = schedule(1, {"F0.0 F0.1 B0.1 B0.0", "F0.0 F0.1 B0.1 B0.0"}, down_and_up(2));
  const Handovers handovers(s);
  const std::vector<ActionAt> chain{{0, 0}, {1, 0}, {1, 1}, {0, 1}};
  for (std::size_t i = 0; i < 4; ++i) {
    const auto none = std::optional<ActionAt>();
    const auto before = i > 0 ? std::optional(chain[i - 1]) : none;
    const auto after = i < 3 ? std::optional(chain[i + 1]) : none;
    EXPECT_EQ(handovers.source_of(chain[i]), before) << "forward of stage " << i;
    EXPECT_EQ(handovers.target_of(chain[i]), after) << "forward of stage " << i;
    // Backward of chunk 1 is action 2, of chunk 0 action 3.
    const auto backward = [](const std::optional<ActionAt>& at) {
      return at ? std::optional(ActionAt{at->rank, 3 - at->position}) : at;
    };
    EXPECT_EQ(handovers.source_of(*backward(chain[i])), backward(after)) << "of stage " << i;
    EXPECT_EQ(handovers.target_of(*backward(chain[i])), backward(before)) << "of stage " << i;
  }
  EXPECT_EQ(handovers.name({1, 2}), "B0.1");
  const Schedule split = same(2, 1, "F0 B0 W0 U0");
  for (const std::size_t local : {2, 3}) {
    EXPECT_EQ(Handovers(split).source_of({0, local}), std::nullopt);
    EXPECT_EQ(Handovers(split).target_of({1, local}), std::nullopt);
  }
}

// Two copies of a model of one stage: neither gives the other anything.
TEST(CheckGiven, CopiesOfTheModelAreApart) {
  Schedule s = same(2, 1, "F0 B0");
  EXPECT_EQ(Handovers(s).target_of({0, 0}), (ActionAt{1, 0}));
  s.copies = 2;
  for (const int rank : {0, 1})
    for (const std::size_t position : {0, 1}) {
      EXPECT_EQ(Handovers(s).source_of({rank, position}), std::nullopt);
      EXPECT_EQ(Handovers(s).target_of({rank, position}), std::nullopt);
    }
}

TEST(CheckGiven, CompleteListsHaveNoProblems) {
  EXPECT_EQ(list_problems(two_by_turns()), Texts{});
  EXPECT_EQ(list_problems(same(1, 2, "F0 F1 B1 B0 U1")), Texts{});
  EXPECT_EQ(list_problems(same(1, 2, "F0 B0 U0 F1 B1 U1")), Texts{});
  EXPECT_EQ(list_problems(same(1, 2, "F0 B0 F1 B1 W0 W1 U1")), Texts{});
  EXPECT_EQ(list_problems(schedule(1, {"F0.0 F0.1 B0.1 U0.1 B0.0 U0.0"}, round_robin(1, 2))),
            Texts{});
}

TEST(CheckGiven, EachActionOnce) {
  EXPECT_EQ(list_problems(schedule(2, {"F0 F1 B0 B1", "F0 F1 F1 B0"})),
            (Texts{"rank 1: F1 is there again, once is expected", "rank 1: B1 is missing"}));
  EXPECT_EQ(list_problems(same(1, 1, "F0 B0 B0")),
            Texts{"rank 0: B0 is there again, once is expected"});
  EXPECT_EQ(list_problems(same(1, 2, "F0 F1 B0 B1 W1")), Texts{"rank 0: W0 is missing"});
  EXPECT_EQ(list_problems(schedule(1, {"F0.0 B0.0"}, round_robin(1, 2))),
            (Texts{"rank 0: F0.1 is missing", "rank 0: B0.1 is missing"}));
}

TEST(CheckGiven, NothingUnknown) {
  EXPECT_EQ(list_problems(same(1, 1, "F0 B0 F1")),
            Texts{"rank 0: F1 has micro-batch 1 and chunk 0: there are 1 and 1, from 0"});
  EXPECT_EQ(list_problems(same(1, 1, "F0 B0 B0.1")),
            Texts{"rank 0: B0 has micro-batch 0 and chunk 1: there are 1 and 1, from 0"});
  EXPECT_EQ(list_problems(same(1, 1, "F-1 F0 B0.-1 B0")),
            (Texts{"rank 0: F-1 has micro-batch -1 and chunk 0: there are 1 and 1, from 0",
                   "rank 0: B0 has micro-batch 0 and chunk -1: there are 1 and 1, from 0"}));
  Schedule s = same(1, 1, "F0 B0 W0");
  s.splits_backward = false;
  EXPECT_EQ(list_problems(s),
            Texts{"rank 0: W0 is unknown: this schedule's backward has the weights' gradients"});
}

TEST(CheckGiven, EachActionAfterTheOneItNeeds) {
  EXPECT_EQ(list_problems(same(1, 2, "B0 F0 F1 B1")), Texts{"rank 0: B0 comes before F0"});
  EXPECT_EQ(list_problems(same(1, 1, "F0 W0 B0")), Texts{"rank 0: W0 comes before B0"});
}

TEST(CheckGiven, UpdatesAfterTheirGradients) {
  EXPECT_EQ(list_problems(same(1, 2, "F0 F1 B1 U1 B0")),
            Texts{"rank 0: U after micro-batch 1 comes before B0, whose gradient it needs"});
  EXPECT_EQ(list_problems(same(1, 1, "F0 B0 U0 W0")),
            Texts{"rank 0: U after micro-batch 0 comes before W0, whose gradient it needs"});
  EXPECT_EQ(list_problems(schedule(1, {"F0.0 F0.1 B0.1 U0.0 B0.0"}, round_robin(1, 2))),
            Texts{"rank 0: U.0 after micro-batch 0 comes before B0.0, whose gradient it needs"});
  EXPECT_EQ(list_problems(same(1, 2, "F0 F1 B0 U0 B1 U0")),
            Texts{"rank 0: U after micro-batch 0 has no new gradient: the update before it is "
                  "after micro-batch 0"});
}

TEST(CheckGiven, AListForEachRankAndAStageForEachChunk) {
  Schedule s = two_by_turns();
  s.actions.pop_back();
  EXPECT_EQ(list_problems(s), Texts{"1 lists of actions, one for each of 2 ranks expected"});
  s = two_by_turns();
  s.micro_batches = 0;
  EXPECT_EQ(list_problems(s), Texts{"0 micro-batches, at least 1 expected"});
  s.stage_of = {{0}, {0}};
  EXPECT_EQ(list_problems(s), Texts{"written: ranks 0 and 1 both have stage 0"});
  EXPECT_EQ(problems(s), list_problems(s)) << "lists that are not complete are not run";
  s = two_by_turns();
  for (const int copies : {-1, 0, 3}) {
    s.copies = copies;
    EXPECT_EQ(list_problems(s), Texts{"2 stages of " + std::to_string(copies) +
                                      " copies of the model, a multiple expected"});
  }
}

// Each boundary by itself: rank 1 turns the micro-batches around, and rank 2 keeps its order.
TEST(CheckGiven, MessagesByPairAndDirection) {
  const Schedule s = schedule(3, {"F0 F1 F2 B0 B1 B2", "F0 F1 F2 B1 B0 B2", "F0 F2 F1 B1 B0 B2"});
  EXPECT_EQ(message_problems(Handovers(s)),
            (Texts{"forward from rank 1 to rank 2, message 1 (from 0): sent for F1, micro-batch 1, "
                   "but received for F2, micro-batch 2",
                   "backward from rank 1 to rank 0, message 0 (from 0): sent for B1, micro-batch "
                   "1, but received for B0, micro-batch 0"}));
  EXPECT_EQ(message_problems(Handovers(two_by_turns())), Texts{});
}

// Two chunks of two ranks: forward of both boundaries 0 -> 1 is one sequence of messages.
TEST(CheckGiven, MessagesOfAllChunksOfAPairAreOneSequence) {
  const std::string list = "F0.0 F1.0 F0.1 F1.1 B0.1 B1.1 B0.0 B1.0";
  EXPECT_EQ(message_problems(Handovers(schedule(2, {list, list}, round_robin(2, 2)))), Texts{});
  EXPECT_EQ(message_problems(Handovers(
                schedule(2, {list, "F0.0 F0.1 F1.0 F1.1 B0.1 B1.1 B0.0 B1.0"}, round_robin(2, 2)))),
            Texts{"forward from rank 0 to rank 1, message 1 (from 0): sent for F1.0, micro-batch "
                  "1, but received for F0.1, micro-batch 0"});
}

TEST(CheckGiven, MostInFlight) {
  EXPECT_EQ(most_in_flight(two_by_turns()), (std::vector<int>{2, 1}));
  EXPECT_EQ(most_in_flight(schedule(2, {"F0 B0 F1 B1 W0 W1", "F0 F1 B0 W0 B1 W1"})),
            (std::vector<int>{1, 2}));
  EXPECT_EQ(most_in_flight(schedule(2, {"F0 B0 F1 B1 W0 W1", "F0 F1 B0 W0 B1 W1"}),
                           ActionKind::WeightGradient),
            (std::vector<int>{2, 2}));
  EXPECT_EQ(most_in_flight(two_by_turns(), ActionKind::WeightGradient), (std::vector<int>{2, 1}));
  EXPECT_EQ(most_in_flight(schedule(1, {"F0.0 F0.1 B0.1 B0.0"}, round_robin(1, 2))),
            std::vector<int>{2});
}

TEST(CheckGiven, MostInFlightIsGivenForEachRank) {
  EXPECT_TRUE(error_says([] { problems(two_by_turns(), {.most_in_flight = {1}}); },
                         {"written", "most_in_flight has 1 numbers", "2 ranks"}));
}

TEST(CheckGiven, CircleFromItsSmallestRank) {
  const Schedule s = schedule(2, {"F0 F1 B0 B1", "F0 F1 B0 B1", "F0 B0 F1 B1"});
  const std::string expected =
      "ranks 1 -> 2 -> 1 wait for each other: rank 1 cannot end its send after F1 before rank 2 "
      "begins F1; rank 2 cannot end its send after B0 before rank 1 begins B0";
  for (const int rank : {0, 1, 2})
    EXPECT_EQ(circle_text(Handovers(s), {2, 2, 2}, Sends::Blocking, rank), expected);
  EXPECT_EQ(circle_text(Handovers(s), {2, 2, 2}, Sends::Started, 2),
            "rank 2 has done 2 of 4 actions and waits for no other");
}

// Rank 0's messages have been taken: it waits for what it receives.
TEST(CheckGiven, CircleOfASendAndAReceive) {
  EXPECT_EQ(circle_text(Handovers(schedule(2, {"F0 F1 B1 B0", "F0 F1 B0 B1"})), {2, 3},
                        Sends::Blocking, 0),
            "ranks 0 -> 1 -> 0 wait for each other: rank 0 cannot begin B1 before rank 1 has done "
            "B1; rank 1 cannot end its send after B0 before rank 0 begins B0");
}

}  // namespace
}  // namespace aisc
