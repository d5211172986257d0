// Every way to divide 2, 3, 4, 6 and 8 ranks among data, stages and parts of layers, with every
// synchronous schedule and every stage of ZeRO: the serial run. Of about two hundred layouts a part
// is drawn by the seed of tests; AISC_TEST_ALL=1 takes all.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "tests/11_gpt_3d/whole/layout_cases.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

constexpr int kSteps = 3;

// Those that shall not be left to the draw: each stage of ZeRO beside stages and parts of layers,
// fewer and more micro-batches, and more stages than blocks, so that the embedding is one alone.
const LayoutCase kFixed[] = {
    {.dp = 2, .pp = 2, .zero = 1, .schedule = "1f1b", .layers = 5},
    {.dp = 2, .pp = 2, .zero = 1, .schedule = "zb-h1", .layers = 5},
    {.dp = 2, .pp = 2, .zero = 1, .schedule = "zb-v", .chunks = 2, .layers = 5},
    {.dp = 2, .pp = 2, .zero = 2, .schedule = "1f1b", .layers = 5},
    {.dp = 3, .pp = 2, .zero = 3, .schedule = "1f1b", .layers = 5},
    {.dp = 2, .pp = 2, .zero = 3, .schedule = "gpipe", .layers = 5},
    {.dp = 2, .pp = 2, .zero = 3, .schedule = "interleaved", .chunks = 2, .layers = 5},
    {.dp = 2, .pp = 4, .zero = 1, .schedule = "1f1b", .layers = 2},
    {.dp = 2, .pp = 4, .zero = 3, .schedule = "1f1b", .layers = 2},
    {.dp = 2, .pp = 2, .zero = 2, .schedule = "interleaved", .chunks = 2, .layers = 2},
    {.dp = 2, .tp = 2, .micro = 1},
    {.dp = 3, .tp = 2, .micro = 1},
    {.dp = 2, .tp = 3, .micro = 1},
    {.pp = 2, .tp = 2, .schedule = "1f1b", .micro = 1},
    {.pp = 3, .tp = 2, .schedule = "1f1b"},
    {.dp = 2, .pp = 2, .tp = 2, .schedule = "1f1b", .micro = 1},
    {.dp = 2, .pp = 2, .tp = 2, .schedule = "1f1b", .micro = 2},
    {.dp = 2, .tp = 2, .zero = 1, .micro = 1},
    {.dp = 2, .tp = 2, .zero = 2, .micro = 1},
    {.dp = 2, .tp = 2, .zero = 3, .micro = 1},
    {.dp = 3, .tp = 2, .zero = 3, .micro = 2},
    {.dp = 2, .pp = 2, .tp = 2, .zero = 1, .schedule = "1f1b", .micro = 2},
    {.dp = 2, .tp = 2, .zero = 2, .sequence = true, .micro = 2},
    {.dp = 3, .tp = 2, .zero = 3, .sequence = true, .micro = 2},
    {.pp = 2, .tp = 2, .schedule = "interleaved", .chunks = 2, .sequence = true},
    {.dp = 2, .pp = 2, .tp = 2, .zero = 1, .schedule = "1f1b", .sequence = true, .micro = 2},
    {.dp = 4, .tp = 2, .zero = 3, .micro = 2, .group = 2},
    {.dp = 4, .pp = 2, .zero = 2, .schedule = "1f1b", .micro = 2, .layers = 5, .group = 2},
    {.dp = 2, .zero = 3, .recompute = true, .stored = true, .micro = 2},
    {.pp = 2, .tp = 2, .schedule = "1f1b", .recompute = true, .sequence = true, .stored = true},
    {.pp = 2, .schedule = "zb-h1", .recompute = true, .stored = true},
    {.dp = 2, .zero = 2, .cp = 2, .micro = 2},
    {.dp = 2, .zero = 3, .cp = 3, .micro = 2},
    {.pp = 2, .schedule = "zb-v", .chunks = 2, .cp = 2},
    {.pp = 2, .tp = 2, .schedule = "1f1b", .recompute = true, .sequence = true, .cp = 2},
    {.dp = 2, .tp = 2, .zero = 1, .sequence = true, .cp = 2, .micro = 2},
    {.dp = 2, .zero = 3, .stored = true, .cp = 2, .micro = 2},
    {.pp = 2, .schedule = "zb-v", .chunks = 2, .stored = true, .cp = 2},
    {.pp = 2,
     .tp = 2,
     .schedule = "1f1b",
     .recompute = true,
     .sequence = true,
     .stored = true,
     .cp = 2},
    {.virtual_time = true, .weights_away = true, .saved_away = true},
    {.dp = 2, .weights_away = true, .saved_away = true},
    {.dp = 3, .recompute = true, .virtual_time = true, .weights_away = true, .saved_away = true},
    {.dp = 2, .zero = 2, .virtual_time = true, .saved_away = true},
    {.tp = 2, .virtual_time = true, .weights_away = true, .saved_away = true, .sequence = true},
    {.dp = 2,
     .pp = 2,
     .schedule = "1f1b",
     .virtual_time = true,
     .weights_away = true,
     .saved_away = true},
    {.pp = 2,
     .schedule = "interleaved",
     .chunks = 2,
     .recompute = true,
     .weights_away = true,
     .saved_away = true},
    {.pp = 2, .schedule = "zb-v", .chunks = 2, .virtual_time = true, .saved_away = true},
    {.dp = 2,
     .pp = 2,
     .tp = 2,
     .schedule = "gpipe",
     .weights_away = true,
     .saved_away = true,
     .cp = 2,
     .ep = 2,
     .router = "top2",
     .micro = 2,
     .layers = 4},
    {.dp = 2, .virtual_time = true, .update_away = true},
    {.dp = 3, .zero = 1, .update_away = true},
    {.dp = 2, .tp = 2, .zero = 3, .virtual_time = true, .update_away = true, .sequence = true},
    {.dp = 2,
     .pp = 2,
     .schedule = "1f1b",
     .virtual_time = true,
     .saved_away = true,
     .update_away = true},
    {.dp = 2, .pp = 2, .zero = 1, .schedule = "zb-h1", .update_away = true},
    {.dp = 2, .update_away = true, .ep = 2, .router = "bias"},
    {.dp = 2, .ep = 1, .micro = 2},
    {.dp = 2, .ep = 2, .router = "top2", .micro = 2},
    {.dp = 2, .ep = 2, .router = "bias"},
    {.dp = 2, .recompute = true, .ep = 2, .router = "noisy-top2"},
    {.dp = 2, .tp = 2, .ep = 2, .router = "expert-choice"},
    {.dp = 4, .zero = 1, .ep = 2, .micro = 1},
    {.dp = 4, .zero = 2, .ep = 2, .router = "top2", .micro = 1},
    {.dp = 4, .zero = 3, .recompute = true, .ep = 2, .router = "bias", .micro = 2},
    {.dp = 3, .zero = 3, .ep = 3, .router = "top2", .micro = 2},
    {.tp = 2, .ep = 1, .micro = 1},
    {.dp = 2, .tp = 2, .zero = 1, .ep = 2, .router = "bias", .micro = 2},
    {.dp = 2, .tp = 2, .zero = 3, .sequence = true, .ep = 2, .micro = 2},
    {.dp = 2, .pp = 2, .schedule = "1f1b", .ep = 2, .layers = 4},
    {.dp = 2, .pp = 2, .schedule = "zb-h1", .ep = 2, .router = "top2", .layers = 4},
    {.dp = 2, .pp = 2, .schedule = "interleaved", .chunks = 2, .ep = 2, .layers = 4},
    {.pp = 2, .schedule = "zb-v", .chunks = 2, .recompute = true, .cp = 2, .ep = 1, .layers = 4},
    {.dp = 2,
     .pp = 2,
     .tp = 2,
     .zero = 1,
     .schedule = "1f1b",
     .recompute = true,
     .sequence = true,
     .cp = 2,
     .ep = 2,
     .router = "top2",
     .micro = 2,
     .layers = 4}};

class Layouts : public ::testing::TestWithParam<LayoutCase> {};
INSTANTIATE_TEST_SUITE_P(OfRanks, Layouts, ::testing::ValuesIn(drawn_layouts()));
INSTANTIATE_TEST_SUITE_P(Fixed, Layouts, ::testing::ValuesIn(kFixed));

TEST_P(Layouts, LeaveWhatOneRankLeaves) {
  const LayoutCase& c = GetParam();
  const TrainConfig config = config_of(c);
  const std::vector<RunRecord>& one = serial_of(config, kSteps, parts_of_one(c));
  EXPECT_THAT(one.back().norms, ::testing::AllOf(::testing::SizeIs(kSteps),
                                                 ::testing::Each(::testing::Gt(config.clip))));
  EXPECT_TRUE(same_steps(one, run_layout({.ranks = c.ranks(), .virtual_time = c.virtual_time},
                                         config, kSteps, parts_of(c))));
}

// Ranks of the same share of the batch have the same windows, others have others.
double evaluated(TrainConfig config, int ranks, const StepParts& parts) {
  const std::vector<std::uint8_t> text = some_text();
  double loss = 0;
  launch(launch_options({.ranks = ranks}), [&](const Rank& rank) {
    Trainer trainer(rank, config, parts);
    const BatchSampler data(text, config.model.context, config.seed);
    trainer.step(data);
    std::vector<Batch> windows;
    for (int w = trainer.data_ranks().rank(); w < 3; w += trainer.data_ranks().size())
      windows.push_back(data.batch(rank.device, 2 * w, 2));
    const double found = trainer.evaluate(windows);
    if (rank.world.rank() == 0) loss = found;
  });
  return loss;
}

TEST(LayoutsOfRanks, EvaluateTheWholeModelOnce) {
  for (const LayoutCase& c : kFixed) {
    if (c.tp * c.cp == 1 && c.ep == 0) continue;
    TrainConfig alone = config_of(c);
    alone.pp = alone.tp = alone.cp = alone.ep = 1;
    const double expected = evaluated(alone, 1, parts_of_one(c));
    EXPECT_NEAR(evaluated(config_of(c), c.ranks(), parts_of(c)), expected, 1e-12 * expected) << c;
  }
}

// AdamW hardly sees a factor that is the same in all steps: that of clipping is not.
TEST(LayoutsOfOneRank, AreNotClippedWithoutATrace) {
  const LayoutCase c{.dp = 2};
  TrainConfig free = config_of(c);
  free.clip = 0;
  const RunRecord &clipped = serial_of(config_of(c), kSteps)[1],
                  &other = serial_of(free, kSteps)[1];
  EXPECT_EQ(clipped.norms[0], other.norms[0]);
  EXPECT_GT(std::abs(clipped.norms[1] - other.norms[1]), 1e4 * kSameRunF64);
  EXPECT_FALSE(same_run(clipped, other, 1e4 * kSameRunF64));
}

// Gradients in shards are sent and freed behind each layer, before a deferred one is there.
TEST(LayoutsThatAreNone, AreRefusedWithTheReason) {
  for (const int zero : {2, 3}) {
    const LayoutCase c{.dp = 2, .pp = 2, .zero = zero, .schedule = "zb-h1"};
    EXPECT_TRUE(error_says([&] { run_layout({.ranks = 4}, config_of(c), 1, parts_of(c)); },
                           {fmt::format("sharding: stage {} frees gradients behind a layer: weight "
                                        "gradients cannot be deferred",
                                        zero)}));
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
