// What all makers write down can be executed.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "05_pipeline/check.h"
#include "05_pipeline/more/bidirectional.h"
#include "05_pipeline/schedules.h"
#include "05_pipeline/timed_run.h"
#include "tests/support/drawn.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

void expect_runs(const Schedule& s, Sends sends = Sends::Started) {
  EXPECT_EQ(problems(s, {.sends = sends}), std::vector<std::string>{})
      << s.name << " of " << s.ranks() << " ranks, " << s.chunks() << " chunks, " << s.micro_batches
      << " micro-batches";
}

void expect_all_run(int p, int m) {
  for (const Sends sends : {Sends::Started, Sends::Blocking}) {
    expect_runs(naive(p, m), sends);
    expect_runs(gpipe(p, m), sends);
  }
  for (const auto& make : {one_f_one_b, zb_h1, zb_h2, zb_v, pipedream}) expect_runs(make(p, m));
  for (const int v : {2, 3}) expect_runs(interleaved(p, v, p * m));
  if (m >= 2 * p) expect_runs(dual_pipe_v(p, m));
  if (m < p) return;
  if (p % 2 == 0) expect_runs(dual_pipe(p, 2 * m));
  for (const int updates : {1, 3}) expect_runs(two_bw(p, m, updates));
}

TEST(CheckedSchedules, CanBeExecuted) {
  for (int p = 1; p <= 5 && !HasFailure(); ++p)
    for (int m = 1; m <= 9 && !HasFailure(); ++m) expect_all_run(p, m);
  expect_all_run(static_cast<int>(drawn("ranks of all schedules", 6, 9)),
                 static_cast<int>(drawn("micro-batches of all schedules", 3, 20)));
}

TEST(CheckedSchedules, OfTwoCopiesOfTheModelAreNotExecuted) {
  EXPECT_TRUE(
      error_says([] { timed::run(dual_pipe(2, 4)); },
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
