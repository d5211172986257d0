// Traces of runs that stand still: made by hand; of a mesh where one rank stops; and drawn without
// any sense, against all pairs of ranks.
#include "11_gpt_3d/waits.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/11_gpt_3d/traces.h"

namespace aisc::traces {
namespace {

// What somebody gets who made it.
struct Mistake {
  Ranks found;
  std::string why;
};

void expect_waits(const Trace& trace, int rank, const Ranks& expected,
                  const std::vector<Mistake>& mistakes = {}) {
  const Ranks found = waits_for(trace, rank);
  std::string cause = "count the calls of the same communicator and ranks on both sides";
  for (const Mistake& mistake : mistakes)
    if (found == mistake.found) cause = mistake.why;
  EXPECT_EQ(found, expected) << "rank " << rank << " waits for " << text_of(found) << ", expected "
                             << text_of(expected) << ". Usual cause: " << cause << "\n"
                             << text_of(trace);
}

void expect_causes(const Trace& trace, const Ranks& expected,
                   const std::vector<Mistake>& mistakes = {}) {
  const Ranks found = causes(trace);
  std::string cause = "follow waits_for() from rank to rank";
  for (const Mistake& mistake : mistakes)
    if (found == mistake.found) cause = mistake.why;
  EXPECT_EQ(found, expected) << "the causes are " << text_of(found) << ", expected "
                             << text_of(expected) << ". Usual cause: " << cause << "\n"
                             << text_of(trace);
}

void expect_mismatched(const Trace& trace, const Ranks& expected) {
  for (int rank = 0; rank < static_cast<int>(trace.size()); ++rank) {
    const bool is = std::count(expected.begin(), expected.end(), rank) > 0;
    EXPECT_EQ(mismatched(trace, rank), is) << "rank " << rank << " is " << (is ? "" : "not ")
                                           << "in a call that meets another operation\n"
                                           << text_of(trace);
  }
}

// Rank 0 has begun both sums, and waits in the first; rank 1 in the second.
TEST(Waits, InTheFirstOfCallsThatAreUnderWayTogether) {
  const TracedCall first = sum("dp", {0, 1, 2}), second = sum("dp", {0, 1, 2});
  const Trace trace{{{first, second}}, {{over(first), second}}, {{over(first)}}};
  expect_waits(trace, 0, {},
               {{{2}, "all have begun the first sum; the second is not what rank 0 waits in"}});
  expect_waits(trace, 1, {2}, {{{0, 2}, "rank 0 has begun the second, too"}});
  expect_causes(trace, {2});
}

TEST(Waits, ForALateRankByHand) {
  const Trace trace{{{sum("world", {0, 1, 2})}}, {{sum("world", {0, 1, 2})}}, {}};
  expect_waits(trace, 0, {2},
               {{{1, 2}, "rank 1 has begun this call, too, and nobody waits for it"}});
  expect_waits(trace, 1, {2});
  expect_waits(trace, 2, {}, {{{0, 1}, "rank 2 computes: it is in no call"}});
  expect_mismatched(trace, {});
  expect_causes(trace, {2}, {{{0, 1}, "ranks 0 and 1 wait, and rank 2 lets them"}});
}

TEST(Waits, ForNobodyWhereAllHaveComeOrCompute) {
  const Trace all_came{{{sum("world", {0, 1})}}, {{sum("world", {0, 1})}}};
  const Trace computing{{{over(sum("world", {0, 1}))}}, {{over(sum("world", {0, 1}))}}};
  for (const Trace& trace : {all_came, computing, Trace{{}, {}}, Trace{}}) {
    for (int rank = 0; rank < static_cast<int>(trace.size()); ++rank) expect_waits(trace, rank, {});
    expect_mismatched(trace, {});
    expect_causes(trace, {});
  }
}

// Rank 0 is in the second sum, rank 1 computes behind the first.
TEST(Waits, TheFirstCallMeetsTheFirstAndTheSecondTheSecond) {
  const Trace trace{{{over(sum("tp 0", {0, 1})), sum("tp 0", {0, 1})}},
                    {{over(sum("tp 0", {0, 1}))}}};
  expect_waits(trace, 0, {1},
               {{{}, "rank 1 has come to the first sum of tp 0, and rank 0 is in the second"}});
  expect_causes(trace, {1});
}

// Ranks 0 1 and 2 3 are groups of tp, 0 2 and 1 3 of dp. Rank 1 has more calls than rank 0, of
// another group; rank 3 is several calls behind.
TEST(Waits, OnARankThatIsBehindInAnotherGroupByHand) {
  const Trace trace{
      {{over(sum("tp 0", {0, 1})), sum("tp 0", {0, 1})}},
      {{over(sum("tp 0", {0, 1})), over(sum("dp 1", {1, 3})), sum("dp 1", {1, 3})}},
      {{over(sum("tp 1", {2, 3})), over(sum("tp 1", {2, 3})), sum("tp 1", {2, 3})}},
      {{over(sum("dp 1", {1, 3})), over(sum("tp 1", {2, 3})), over(sum("tp 1", {2, 3}))}}};
  expect_waits(trace, 0, {1},
               {{{},
                 "calls of other groups count for nothing: rank 1 has begun one "
                 "call of tp 0, and rank 0 is in its second"}});
  expect_waits(trace, 1, {3},
               {{{},
                 "calls of other groups count for nothing: rank 3 has begun one "
                 "call of dp 1, and rank 1 is in its second"}});
  expect_waits(trace, 2, {3});
  expect_causes(trace, {3},
                {{{1, 3}, "rank 1 lets rank 0 wait, and waits itself: it is no cause"}});
}

// Stage 3 computes; 2 waits for its gradient, 1 for that of 2, and 0 for that of 1.
TEST(Waits, AlongAPipelineByHand) {
  Trace trace(4);
  for (int stage = 0; stage < 4; ++stage) {
    if (stage > 0)
      trace[static_cast<std::size_t>(stage)].calls.push_back(over(message("pp", stage - 1, stage)));
    if (stage < 3)
      trace[static_cast<std::size_t>(stage)].calls.push_back(over(message("pp", stage, stage + 1)));
    if (stage < 3)
      trace[static_cast<std::size_t>(stage)].calls.push_back(message("pp", stage + 1, stage));
  }
  for (int stage = 0; stage < 3; ++stage)
    expect_waits(trace, stage, {stage + 1},
                 {{{},
                   fmt::format("a message of rank {} to {} is another call than one of {} to {}",
                               stage + 1, stage, stage, stage + 1)}});
  expect_waits(trace, 3, {});
  expect_causes(trace, {3}, {{{1, 2, 3}, "ranks 1 and 2 let a rank wait, and wait themselves"}});
}

TEST(Waits, ForADeadRankByHand) {
  const std::vector<int> world{0, 1, 2};
  const Trace before{{{sum("world", world)}}, {{sum("world", world)}}, {{}, true}};
  expect_waits(before, 0, {2});
  expect_causes(before, {2});
  // It died inside: its call is there, and never ends.
  const Trace inside{
      {{sum("world", world)}}, {{sum("world", world)}}, {{sum("world", world)}, true}};
  expect_waits(inside, 0, {2}, {{{}, "rank 2 has begun the call, but died in it"}});
  expect_waits(inside, 2, {}, {{{0, 1}, "a rank that has ended waits for nobody"}});
  expect_causes(inside, {2});
  // It left after the last call, and nobody needs it.
  expect_causes({{{over(sum("world", {0, 1}))}}, {{over(sum("world", {0, 1}))}, true}}, {});
}

// Both stages receive first; the ranks beside them wait for a stage each.
TEST(Waits, InACircleByHand) {
  const Trace trace{{{message("pp", 1, 0)}},
                    {{message("pp", 0, 1)}},
                    {{sum("tp 0", {0, 2})}},
                    {{sum("tp 1", {1, 3})}}};
  expect_waits(trace, 0, {1}, {{{}, "0 to 1 and 1 to 0 are two messages"}});
  expect_waits(trace, 1, {0});
  expect_mismatched(trace, {});
  expect_causes(
      trace, {0, 1},
      {{{}, "where all wait, the ranks that wait for each other in a circle are the cause"},
       {{0, 1, 2, 3}, "ranks 2 and 3 wait for the circle, and are not in it"}});
}

TEST(Waits, ACircleIsACauseBesideARankThatComputes) {
  const Trace trace{{{message("pp", 1, 0)}},
                    {{message("pp", 2, 1)}},
                    {{message("pp", 0, 2)}},
                    {{sum("tp 1", {3, 4})}},
                    {}};
  expect_causes(trace, {0, 1, 2, 4},
                {{{4}, "a circle does not end when rank 4 comes: it is a cause, too"},
                 {{0, 1, 2}, "rank 4 lets rank 3 wait, too"}});
}

TEST(Waits, MeetsAnotherOperationByHand) {
  const Trace two{{{sum("dp 0", {0, 1})}}, {{gather("dp 0", {0, 1})}}};
  expect_waits(two, 0, {},
               {{{1}, "rank 1 has come to the first call of dp 0, with another operation"}});
  expect_mismatched(two, {0, 1});
  expect_causes(two, {0, 1}, {{{}, "ranks in a mismatched call wait for nobody and never go on"}});
  // Rank 3 waits for rank 0, and rank 2 computes.
  const Trace more{{{over(sum("tp 0", {0, 3})), sum("dp 0", {0, 1})}},
                   {{gather("dp 0", {0, 1})}},
                   {},
                   {{over(sum("tp 0", {0, 3})), sum("tp 0", {0, 3})}}};
  expect_mismatched(more, {0, 1});
  expect_causes(more, {0, 1});
}

// Rank 2 has not come, and the two others disagree already.
TEST(Waits, AMismatchedCallMayAlsoWait) {
  const Trace trace{{{sum("world", {0, 1, 2})}}, {{gather("world", {0, 1, 2})}}, {}};
  expect_waits(trace, 0, {2});
  expect_mismatched(trace, {0, 1});
  expect_causes(
      trace, {0, 1, 2},
      {{{2}, "0 and 1 are in a mismatched call: they would not go on with rank 2 either"}});
}

// What came back has met what it should have: only the call in which a rank is may be mismatched.
TEST(Waits, OnlyOpenCallsAreMismatched) {
  const Trace trace{{{over(sum("tp 0", {0, 1})), gather("tp 0", {0, 1})}},
                    {{over(sum("tp 0", {0, 1}))}}};
  expect_waits(trace, 0, {1});
  expect_mismatched(trace, {});
  expect_causes(trace, {1});
}

// A mesh in which all ranks go on as far as they can, and one stops: it is the only cause.
TEST(Waits, OneRankThatStopsIsTheCause) {
  int waited = 0;
  for (int i = 0; i < 200; ++i) {
    const StoppedRun run = stopped_run(fmt::format("stopped run {}", i));
    expect_causes(run.trace, run.somebody_waits ? Ranks{run.victim} : Ranks{});
    waited += run.somebody_waits;
    if (HasFailure()) return;
  }
  EXPECT_GT(waited, 100);
}

TEST(Waits, WhateverRanksHaveCalled) {
  int circles = 0, mismatches = 0;
  for (int i = 0; i < 400; ++i) {
    const Trace trace = senseless_trace(fmt::format("senseless trace {}", i));
    const Oracle oracle(trace);
    for (int rank = 0; rank < static_cast<int>(trace.size()); ++rank)
      expect_waits(trace, rank, oracle.waits[static_cast<std::size_t>(rank)]);
    expect_mismatched(trace, oracle.mismatched);
    expect_causes(trace, oracle.causes);
    circles += oracle.has_circle;
    mismatches += !oracle.mismatched.empty();
    if (HasFailure()) return;
  }
  EXPECT_GT(circles, 20);
  EXPECT_GT(mismatches, 20);
}

}  // namespace
}  // namespace aisc::traces
