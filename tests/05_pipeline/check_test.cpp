// Lists that can be executed and lists that cannot.
#include "05_pipeline/check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <tuple>
#include <utility>

#include "tests/05_pipeline/unit_time.h"
#include "tests/05_pipeline/written.h"
#include "tests/support/drawn.h"

namespace aisc {
namespace {

using written::one_by_one;
using written::same;
using written::schedule;
using written::two_by_turns;
using Texts = std::vector<std::string>;
using Counts = std::vector<std::size_t>;

std::string text_of(const Schedule& s) {
  std::string text;
  int rank = 0;
  for (const std::string& list : unit_time::lists(s))
    text += "\n  rank " + std::to_string(rank++) + ": " + list;
  return text;
}

Counts lengths(const Schedule& s) {
  Counts all;
  for (const auto& list : s.actions) all.push_back(list.size());
  return all;
}

// Run with these sends, the ranks get so many actions done.
::testing::AssertionResult gets_done(const Schedule& s, Sends sends, const Counts& expected) {
  const Handovers handovers(s);
  const Counts done = run_lists(handovers, sends);
  if (done == expected) return ::testing::AssertionSuccess();
  const bool started = sends == Sends::Started;
  auto failure = ::testing::AssertionFailure()
                 << "With sends that " << (started ? "are started" : "block") << ":";
  if (done.size() != expected.size())
    return failure << " the result has " << done.size() << " numbers, one for each of "
                   << expected.size() << " ranks is expected";
  for (std::size_t rank = 0; rank < expected.size(); ++rank) {
    const std::vector<Action>& list = s.actions[rank];
    if (done[rank] == expected[rank]) continue;
    const std::size_t position = std::min({done[rank], expected[rank], list.size() - 1});
    const std::string next = to_string(list[position], s.chunks());
    const bool needs_none = !handovers.source_of({static_cast<int>(rank), position});
    failure << " rank " << rank << " has done " << done[rank] << " of " << list.size()
            << " actions, expected " << expected[rank];
    if (done[rank] > expected[rank])
      failure << ", since it cannot begin " << next
              << (started      ? ": its source is not done."
                  : needs_none ? ": the message of the action before it has not been taken."
                               : ": its source is not done, or the message of the action before it "
                                 "has not been taken.");
    else
      failure << ", since "
              << (needs_none && (started || position == 0)
                      ? next + " needs no result (its source_of is nothing)."
                      : "it can begin " + next + ", perhaps only after others have moved.")
              << (started ? "" : " Only a message to another rank blocks.");
  }
  return failure << text_of(s);
}
// After a failure the rest of a test is not run: a list that is read behind its end is told by what
// failed before.
void expect_done(const Schedule& s, Sends sends, const Counts& expected) {
  if (::testing::Test::HasFailure()) return;
  EXPECT_TRUE(gets_done(s, sends, expected));
}

TEST(Check, TwoRanksByHand) {
  expect_done(schedule(1, {"F0 B0", "F0 B0"}), Sends::Started, {2, 2});
  expect_done(schedule(2, {"F0 F1 B0 B1", "F0 F1 B0 B1"}), Sends::Started, {4, 4});
  expect_done(two_by_turns(), Sends::Started, {4, 4});
  // Rank 0 needs B0 for its second action, rank 1 F1 for its first.
  expect_done(schedule(2, {"F0 B0 F1 B1", "F1 B1 F0 B0"}), Sends::Started, {1, 0});
}

// Rank 0 has sent F1 and rank 1 B0: each holds a message that the other one takes only later.
TEST(Check, SendsThatBlockByHand) {
  expect_done(schedule(2, {"F0 F1 B0 B1", "F0 F1 B0 B1"}), Sends::Blocking, {4, 4});
  expect_done(two_by_turns(), Sends::Blocking, {2, 2});
}

// Backward comes from the last rank: ranks that were passed must be asked again.
TEST(Check, OneMicroBatchAfterTheOther) {
  const auto drawn_count = static_cast<int>(drawn("micro-batches of Check", 4, 9));
  for (const int ranks : {1, 2, 3, 4, 7})
    for (const int micro_batches : {1, 2, drawn_count})
      for (const Sends sends : {Sends::Started, Sends::Blocking}) {
        const Schedule s = one_by_one(ranks, micro_batches);
        expect_done(s, sends, lengths(s));
        EXPECT_EQ(problems(s, {.sends = sends}), Texts{}) << text_of(s);
      }
}

TEST(Check, RanksBeforeTheCircleGoAsFarAsTheyCan) {
  const Schedule s = schedule(2, {"F0 F1 B0 B1", "F0 F1 B0 B1", "F0 B0 F1 B1"});
  expect_done(s, Sends::Started, {4, 4, 4});
  // Ranks 1 and 2 hold F1 and B0; rank 0's messages have been taken.
  expect_done(s, Sends::Blocking, {2, 2, 2});
  // The last rank wants F1 first, rank 0 gives it only after B0.
  expect_done(schedule(2, {"F0 B0 F1 B1", "F0 F1 B0 B1", "F1 F0 B0 B1"}), Sends::Started,
              {1, 1, 0});
}

TEST(Check, WeightGradientsAndUpdatesWaitForNobody) {
  const Schedule s = schedule(2, {"F0 F1 B0 W0 B1 W1 U1", "F0 B0 W0 F1 B1 W1 U1"});
  expect_done(s, Sends::Started, {7, 7});
  // W0 of rank 1 comes behind the send of B0.
  expect_done(s, Sends::Blocking, {2, 2});
  expect_done(schedule(2, {"F0 F1 B0 W0 B1 W1", "F0 F1 B0 B1 W0 W1"}), Sends::Blocking, {6, 6});
}

const std::string kByGroups = "F0.0 F1.0 F0.1 F1.1 B0.1 B1.1 B0.0 B1.0";

// Stages of the same rank send nothing, so nothing blocks; but they, too, have an order.
TEST(Check, StagesOfTheSameRank) {
  for (const Sends sends : {Sends::Started, Sends::Blocking}) {
    expect_done(schedule(1, {"F0.0 F0.1 B0.1 B0.0"}, round_robin(1, 2)), sends, {4});
    expect_done(schedule(1, {"F0.1 F0.0 B0.1 B0.0"}, round_robin(1, 2)), sends, {0});
    expect_done(schedule(1, {"F0.0 F0.1 B0.0 B0.1"}, round_robin(1, 2)), sends, {2});
    expect_done(schedule(2, {kByGroups, kByGroups}, down_and_up(2)), sends, {8, 8});
  }
  // The turning point: rank 1 hands F0.0 to its own F0.1, which comes later in its list.
  expect_done(schedule(2, {"F0.0 F1.0 F0.1 B0.1 F1.1 B1.1 B0.0 B1.0", kByGroups}, down_and_up(2)),
              Sends::Started, {8, 8});
}

TEST(Check, ChunksOnSeveralRanks) {
  const Schedule s = schedule(2, {kByGroups, kByGroups}, round_robin(2, 2));
  expect_done(s, Sends::Started, {8, 8});
  // Rank 0 sends F1.0 to rank 1, which sends F0.0 to rank 0.
  expect_done(s, Sends::Blocking, {2, 1});
  // Another order of forwards on each rank.
  expect_done(
      schedule(2, {"F0.0 F0.1 F1.0 F1.1 B0.1 B1.1 B0.0 B1.0", kByGroups}, round_robin(2, 2)),
      Sends::Started, {8, 8});
  expect_done(
      schedule(2, {"F0.1 F0.0 F1.0 F1.1 B0.1 B1.1 B0.0 B1.0", kByGroups}, round_robin(2, 2)),
      Sends::Started, {0, 0});
}

// What can be done at all, asked of each action by itself.
class Oracle {
 public:
  Oracle(const Schedule& s, Sends sends) : s_(s), sends_(sends) {
    for (int rank = 0; rank < s.ranks(); ++rank)
      for (std::size_t i = 0; i < list(rank).size(); ++i)
        where_[{static_cast<int>(list(rank)[i].kind), list(rank)[i].micro_batch, rank}] = i;
  }

  Counts done() {
    Counts all;
    for (int rank = 0; rank < s_.ranks(); ++rank) {
      std::size_t i = 0;
      while (i < list(rank).size() && can(rank, i)) ++i;
      all.push_back(i);
    }
    return all;
  }

 private:
  const std::vector<Action>& list(int rank) const { return s_.actions[index(rank)]; }
  bool can(int rank, std::size_t i) {
    const auto [known, is_new] = known_.try_emplace({rank, i}, false);
    if (!is_new) return known->second;  // false for one that needs itself
    bool can_be = i == 0 || can(rank, i - 1);
    const Action& a = list(rank)[i];
    can_be = can_be && can_other(a, rank + (a.kind == ActionKind::Forward ? -1 : 1));
    if (i > 0 && sends_ == Sends::Blocking) {
      const Action& before = list(rank)[i - 1];
      can_be = can_be && can_other(before, rank + (before.kind == ActionKind::Forward ? 1 : -1));
    }
    return known_[{rank, i}] = can_be;
  }
  bool can_other(const Action& a, int rank) {
    return rank < 0 || rank >= s_.ranks() ||
           can(rank, where_[{static_cast<int>(a.kind), a.micro_batch, rank}]);
  }

  const Schedule& s_;
  const Sends sends_;
  std::map<std::tuple<int, int, int>, std::size_t> where_;
  std::map<std::pair<int, std::size_t>, bool> known_;
};

// Each rank's backwards follow their forwards, anything else is drawn. `in_order`: micro-batches
// come in their order, so that more lists can be executed.
Schedule drawn_lists(std::mt19937_64& random, bool in_order) {
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const int ranks = 2 + below(3), micro_batches = 1 + below(4);
  Schedule s = one_by_one(ranks, micro_batches);
  for (std::vector<Action>& list : s.actions) {
    list.clear();
    std::vector<int> waiting, begun;
    for (int k = 0; k < micro_batches; ++k) waiting.push_back(k);
    while (!waiting.empty() || !begun.empty()) {
      const bool forward = begun.empty() || (!waiting.empty() && below(2) == 0);
      std::vector<int>& from = forward ? waiting : begun;
      const auto at = from.begin() + (in_order ? 0 : below(static_cast<int>(from.size())));
      list.push_back({forward ? ActionKind::Forward : ActionKind::Backward, *at});
      if (forward) begun.push_back(*at);
      from.erase(at);
    }
  }
  return s;
}

TEST(Check, DrawnListsGetAsFarAsTheyCan) {
  std::mt19937_64 random(test_seed());
  int whole = 0, stuck = 0;
  for (int i = 0; i < 400; ++i) {
    const Schedule s = drawn_lists(random, i % 2 == 0);
    for (const Sends sends : {Sends::Started, Sends::Blocking}) {
      const Counts expected = Oracle(s, sends).done();
      ++(expected == lengths(s) ? whole : stuck);
      expect_done(s, sends, expected);
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(whole, 50);
  EXPECT_GT(stuck, 50);
}

TEST(Check, ProblemsNameTheCircle) {
  EXPECT_EQ(problems(two_by_turns()), Texts{});
  EXPECT_EQ(problems(two_by_turns(), {.sends = Sends::Blocking}),
            Texts{"ranks 0 -> 1 -> 0 wait for each other: rank 0 cannot end its send after F1 "
                  "before rank 1 begins F1; rank 1 cannot end its send after B0 before rank 0 "
                  "begins B0"});
  EXPECT_EQ(problems(schedule(1, {"F0.1 F0.0 B0.1 B0.0"}, round_robin(1, 2))),
            Texts{"rank 0 waits for itself: rank 0 cannot begin F0.1 before rank 0 has done F0.0"});
}

// Rank 0 waits for rank 1, but is not in the circle.
TEST(Check, ProblemsNameOnlyRanksOfTheCircle) {
  const Schedule s = schedule(2, {"F0 F1 B0 B1", "F0 F1 B0 B1", "F0 B0 F1 B1"});
  EXPECT_EQ(problems(s, {.sends = Sends::Blocking}),
            Texts{"ranks 1 -> 2 -> 1 wait for each other: rank 1 cannot end its send after F1 "
                  "before rank 2 begins F1; rank 2 cannot end its send after B0 before rank 1 "
                  "begins B0"});
}

TEST(Check, ProblemsAreAllThatThereAre) {
  EXPECT_EQ(
      problems(schedule(2, {"F0 B0 F1 B1", "F1 B1 F0 B0"}), {.most_in_flight = {0, 1}}),
      (Texts{"forward from rank 0 to rank 1, message 0 (from 0): sent for F0, micro-batch 0, but "
             "received for F1, micro-batch 1",
             "backward from rank 1 to rank 0, message 0 (from 0): sent for B1, micro-batch 1, but "
             "received for B0, micro-batch 0",
             "rank 0: 1 micro-batches in flight, at most 0 expected",
             "ranks 0 -> 1 -> 0 wait for each other: rank 0 cannot begin B0 before rank 1 has "
             "done B0; rank 1 cannot begin F1 before rank 0 has done F1"}));
}

TEST(Check, MicroBatchesInFlight) {
  EXPECT_EQ(problems(two_by_turns(), {.most_in_flight = {2, 1}}), Texts{});
  EXPECT_EQ(problems(same(2, 2, "F0 F1 B0 B1"), {.most_in_flight = {2, 1}}),
            Texts{"rank 1: 2 micro-batches in flight, at most 1 expected"});
  // Until W0 what it needs is there.
  EXPECT_EQ(
      problems(schedule(2, {"F0 F1 B0 W0 B1 W1", "F0 B0 F1 W0 B1 W1"}), {.most_in_flight = {2, 1}}),
      Texts{"rank 1: 2 micro-batches in flight, at most 1 expected"});
}

// Can be executed, but the receiver would take F1's activations for F0's.
TEST(Check, MessagesInAnotherOrder) {
  EXPECT_EQ(problems(schedule(2, {"F0 F1 B0 B1", "F1 F0 B0 B1"})),
            Texts{"forward from rank 0 to rank 1, message 0 (from 0): sent for F0, micro-batch 0, "
                  "but received for F1, micro-batch 1"});
}

}  // namespace
}  // namespace aisc
