// Every way to divide 2, 3, 4, 6 and 8 ranks among data, stages and parts of layers, with every
// synchronous schedule and every stage of ZeRO: the serial run. Of about two hundred layouts a part
// is drawn by the seed of tests; AISC_TEST_ALL=1 takes all.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tests/11_gpt_3d/whole/layout_cases.h"
#include "tests/support/message_of.h"
#include "tests/support/run_layout.h"

namespace aisc {
namespace {

constexpr int kSteps = 3;

// Runs of one rank, each made once.
const std::vector<RunRecord>& serial(TrainConfig config) {
  static std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t, double>,
                  std::vector<RunRecord>>
      runs;
  config.pp = config.tp = 1;
  config.recompute = {};
  auto& run = runs[{config.model.layers, config.batch, config.micro_batches, config.clip}];
  if (run.empty()) run = run_layout({.ranks = 1}, config, kSteps);
  return run;
}

class Layouts : public ::testing::TestWithParam<LayoutCase> {};
INSTANTIATE_TEST_SUITE_P(OfRanks, Layouts, ::testing::ValuesIn(drawn_layouts()));

TEST_P(Layouts, LeaveWhatOneRankLeaves) {
  const LayoutCase& c = GetParam();
  const TrainConfig config = config_of(c);
  const std::vector<RunRecord>& one = serial(config);
  EXPECT_THAT(one.back().norms, ::testing::AllOf(::testing::SizeIs(kSteps),
                                                 ::testing::Each(::testing::Gt(config.clip))));
  EXPECT_TRUE(same_steps(one, run_layout({.ranks = c.ranks(), .virtual_time = c.virtual_time},
                                         config, kSteps, parts_of(c))));
}

// AdamW hardly sees a factor that is the same in all steps: that of clipping is not.
TEST(LayoutsOfOneRank, AreNotClippedWithoutATrace) {
  const LayoutCase c{.dp = 2};
  TrainConfig free = config_of(c);
  free.clip = 0;
  const RunRecord &clipped = serial(config_of(c))[1], &other = serial(free)[1];
  EXPECT_EQ(clipped.norms[0], other.norms[0]);
  EXPECT_GT(std::abs(clipped.norms[1] - other.norms[1]), 1e4 * kSameRunF64);
  EXPECT_FALSE(same_run(clipped, other, 1e4 * kSameRunF64));
}

// Gradients in shards are sent and freed behind each layer, before a deferred one is there.
TEST(LayoutsThatAreNone, AreRefusedWithTheReason) {
  for (const int zero : {2, 3}) {
    const LayoutCase c{.dp = 2, .pp = 2, .zero = zero, .schedule = "zb-h1"};
    const std::string message =
        message_of([&] { run_layout({.ranks = 4}, config_of(c), 1, parts_of(c)); });
    EXPECT_THAT(message, ::testing::HasSubstr(fmt::format(
                             "sharding: stage {} frees gradients behind a layer: weight gradients "
                             "cannot be deferred",
                             zero)));
  }
}

TEST(LayoutsOfRanks, AreAllThatThereAre) {
  std::map<int, int> count;
  for (const LayoutCase& c : all_layouts()) ++count[c.ranks()];
  // Without stages 4 stages of ZeRO for each dp > 1, with stages 6 schedules, of which 3 have all.
  EXPECT_EQ(count, (std::map<int, int>{{2, 4 + 1 + 6},
                                       {3, 4 + 1 + 6},
                                       {4, 2 * 4 + 1 + 2 * 6 + (4 * 3 + 2 * 3)},
                                       {6, 3 * 4 + 1 + 3 * 6 + 2 * (4 * 3 + 2 * 3)},
                                       {8, 3 * 4 + 1 + 3 * 6 + 3 * (4 * 3 + 2 * 3)}}));
}

}  // namespace
}  // namespace aisc
