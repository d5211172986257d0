// Who came last: by hand, in calls that do not all meet, and against all pairs of ranks.
#include "11_gpt_3d/lateness.h"

#include <gtest/gtest.h>

#include "tests/11_gpt_3d/traces.h"

namespace aisc {
namespace {

TracedCall at(double begin, TracedCall call) {
  call.begin_seconds = begin;
  return traces::over(call);
}

std::string said(const std::map<int, Lateness>& late) {
  std::string text;
  for (const auto& [rank, of] : late)
    text += fmt::format("{}: {} calls, {:g} s; ", rank, of.calls, of.seconds);
  return text;
}

constexpr const char* kLateForm =
    "each rank that came last, to how many calls, and how long the others have waited for it";

// When each rank has begun its calls, a line each: "rank 0 began: tp 1 s, tp 3 s, dp 4 s".
std::string begins_of(const traces::Trace& trace) {
  std::string text;
  for (std::size_t r = 0; r < trace.size(); ++r) {
    text += fmt::format("rank {} began:", r);
    for (const TracedCall& call : trace[r].calls)
      text += fmt::format(" {} {:g} s,", call.communicator, call.begin_seconds);
    text.back() = '\n';
  }
  return text;
}

TEST(Lateness, OfThreeRanksByHand) {
  const traces::Ranks all{0, 1, 2};
  const traces::Trace trace{{{at(1, traces::sum("world", all)), at(5, traces::sum("world", all))}},
                            {{at(4, traces::sum("world", all)), at(6, traces::sum("world", all))}},
                            {{at(2, traces::sum("world", all)), at(9, traces::sum("world", all))}}};
  EXPECT_EQ(said(lateness(trace)), "1: 1 calls, 5 s; 2: 1 calls, 7 s; ")
      << begins_of(trace) << kLateForm;
}

// The second sum of "tp" has not begun on rank 1; of "dp" rank 2 has left nothing.
TEST(Lateness, CallsThatNotAllHaveBegunAreLeftOut) {
  const traces::Trace trace{{{at(1, traces::sum("tp", {0, 1})), at(3, traces::sum("tp", {0, 1})),
                              at(4, traces::sum("dp", {0, 2}))}},
                            {{at(2, traces::sum("tp", {0, 1}))}},
                            {{}}};
  EXPECT_EQ(said(lateness(trace)), "1: 1 calls, 1 s; ") << begins_of(trace) << kLateForm;
  EXPECT_EQ(said(lateness({})), "") << "where there is no rank nobody comes last";
}

// Two groups called alike, and the two directions of messages, are different calls.
TEST(Lateness, OnlyCallsOfTheSameRanksMeet) {
  const traces::Trace trace{
      {{at(0, traces::sum("tp", {0, 1})), at(5, traces::message("world", 0, 1))}},
      {{at(1, traces::sum("tp", {0, 1})), at(2, traces::message("world", 1, 0)),
        at(8, traces::message("world", 0, 1))}},
      {{at(7, traces::sum("tp", {2, 3}))}},
      {{at(4, traces::sum("tp", {2, 3}))}}};
  EXPECT_EQ(said(lateness(trace)), "1: 2 calls, 4 s; 2: 1 calls, 3 s; ")
      << begins_of(trace) << kLateForm;
}

TEST(Lateness, OfRanksThatComeTogetherTheLowestIsTheLast) {
  const traces::Trace trace{{{at(1, traces::sum("world", {0, 1}))}},
                            {{at(1, traces::sum("world", {0, 1}))}}};
  EXPECT_EQ(said(lateness(trace)), "0: 1 calls, 0 s; ") << begins_of(trace) << kLateForm;
}

// Drawn times: each rank's share told call by call, with nothing but the definition.
TEST(Lateness, OfDrawnTimes) {
  for (int run = 0; run < 50; ++run) {
    traces::Draws draws("lateness " + std::to_string(run));
    const int ranks = 2 + draws.below(5), calls = 1 + draws.below(6);
    traces::Ranks all;
    for (int r = 0; r < ranks; ++r) all.push_back(r);
    traces::Trace trace(static_cast<std::size_t>(ranks));
    std::map<int, Lateness> expected;
    for (int c = 0; c < calls; ++c) {
      std::vector<int> begins;
      for (TracedRank& rank : trace) {
        begins.push_back(100 * c + draws.below(90));
        rank.calls.push_back(at(begins.back(), traces::sum("world", all)));
      }
      const auto last = std::max_element(begins.begin(), begins.end());
      Lateness& of = expected[static_cast<int>(last - begins.begin())];
      ++of.calls;
      for (const int begin : begins) of.seconds += *last - begin;
    }
    EXPECT_EQ(said(lateness(trace)), said(expected)) << begins_of(trace) << kLateForm;
  }
}

}  // namespace
}  // namespace aisc
