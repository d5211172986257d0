// What all makers write down can be executed, and keeps the memory bounds of its schedule.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "05_pipeline/check.h"
#include "05_pipeline/more/bidirectional.h"
#include "05_pipeline/schedules.h"
#include "tests/05_pipeline/whole/toy_stages.h"
#include "tests/support/drawn.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

// No problems; `most` is what a rank may have in flight.
void expect_runs(const Schedule& s, Sends sends, const std::function<int(int rank)>& most) {
  CheckOptions options{.sends = sends};
  for (int rank = 0; rank < s.ranks(); ++rank) options.most_in_flight.push_back(most(rank));
  EXPECT_EQ(problems(s, options), std::vector<std::string>{})
      << s.name << " of " << s.ranks() << " ranks, " << s.chunks() << " chunks, " << s.micro_batches
      << " micro-batches";
}

void expect_all_run(int p, int m) {
  using enum Sends;
  for (const Sends sends : {Started, Blocking}) {
    expect_runs(naive(p, m), sends, [](int) { return 1; });
    expect_runs(gpipe(p, m), sends, [&](int) { return m; });
  }
  expect_runs(one_f_one_b(p, m), Started, [&](int rank) { return std::min(p - rank, m); });
  expect_runs(zb_h1(p, m), Started, [&](int) { return std::min(p, m); });
  expect_runs(zb_h2(p, m), Started, [&](int) { return std::min(2 * p - 1, m); });
  expect_runs(zb_v(p, m), Started, [&](int) { return 2 * std::min(p, m); });
  if (m >= 2 * p) expect_runs(dual_pipe_v(p, m), Started, [&](int) { return 2 * p + 1; });
  if (m >= p && p % 2 == 0) expect_runs(dual_pipe(p, 2 * m), Started, [&](int) { return p + 1; });
  expect_runs(pipedream(p, m), Started, [&](int rank) { return std::min(p - rank, m); });
  if (m >= p)
    for (const int updates : {1, 3})
      expect_runs(two_bw(p, m, updates), Started, [&](int rank) { return p - rank; });
  for (const int v : {2, 3})
    expect_runs(interleaved(p, v, p * m), Started, [&](int rank) {
      return std::min(2 * (p - rank - 1) + (v - 1) * p + 1, v * p * m);
    });
}

TEST(CheckedSchedules, CanBeExecuted) {
  for (int p = 1; p <= 5 && !HasFailure(); ++p)
    for (int m = 1; m <= 9 && !HasFailure(); ++m) expect_all_run(p, m);
  expect_all_run(static_cast<int>(drawn("ranks of all schedules", 6, 9)),
                 static_cast<int>(drawn("micro-batches of all schedules", 3, 20)));
}

TEST(CheckedSchedules, OfTwoCopiesOfTheModelAreNotExecuted) {
  EXPECT_TRUE(
      error_says([] { toy_pipeline::run(dual_pipe(2, 4)); },
                 {"pipeline: dualpipe is of 2 copies of the model, and ranks execute one"}));
}

// From two micro-batches on a rank and the one behind it both send before they receive.
TEST(CheckedSchedules, OneFOneBNeedsSendsThatAreOnlyStarted) {
  for (int p = 2; p <= 5; ++p) {
    EXPECT_EQ(problems(one_f_one_b(p, 1), {.sends = Sends::Blocking}).size(), 0U) << p << " ranks";
    const std::vector<std::string> found =
        problems(one_f_one_b(p, p + 1), {.sends = Sends::Blocking});
    ASSERT_EQ(found.size(), 1U) << p << " ranks";
    EXPECT_NE(found[0].find("wait for each other"), std::string::npos) << found[0];
  }
}

}  // namespace
}  // namespace aisc
