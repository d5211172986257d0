// Shards within groups of data ranks, beside stages, parts of layers, tokens and experts: what one
// rank leaves, with the norm over the mesh; and what --plan says of them.
#include <gtest/gtest.h>

#include <vector>

#include "11_gpt_3d/mesh_norm.h"
#include "11_gpt_3d/step_order.h"
#include "app/plan.h"
#include "common/comm/host_values.h"
#include "tests/11_gpt_3d/whole/layout_cases.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

constexpr int kGroupSteps = 3;

const LayoutCase kGroupCases[] = {
    {.dp = 4, .tp = 2, .zero = 1, .micro = 1, .group = 2},
    {.dp = 4, .tp = 2, .zero = 2, .sequence = true, .micro = 2, .group = 2},
    {.dp = 2, .tp = 2, .zero = 3, .sequence = true, .micro = 2, .group = 1},
    {.dp = 4, .pp = 2, .zero = 1, .schedule = "zb-h1", .layers = 5, .group = 2},
    {.dp = 4, .pp = 2, .zero = 3, .schedule = "interleaved", .chunks = 2, .layers = 5, .group = 2},
    {.dp = 2, .pp = 2, .tp = 2, .zero = 3, .schedule = "gpipe", .micro = 2, .group = 1},
    {.dp = 2, .zero = 3, .cp = 2, .micro = 2, .group = 2},
    {.dp = 4, .zero = 2, .ep = 2, .router = "top2", .micro = 1, .group = 2},
    {.dp = 4, .zero = 3, .ep = 2, .router = "bias", .micro = 2, .group = 1},
    {.dp = 6, .tp = 1, .zero = 1, .virtual_time = true, .update_away = true, .group = 3},
    {.dp = 4, .tp = 2, .zero = 3, .virtual_time = true, .update_away = true, .group = 2}};

StepParts parts_over_mesh(const LayoutCase& c) {
  StepParts parts = parts_of(c);
  if (config_of(c).has_mesh()) {
    parts.finish = finish_step;
    parts.own_square = own_square;
  }
  return parts;
}

class ShardGroupLayouts : public ::testing::TestWithParam<LayoutCase> {};
INSTANTIATE_TEST_SUITE_P(Of, ShardGroupLayouts, ::testing::ValuesIn(kGroupCases));

// Every step is clipped, so that a norm that counted a shard once for each group would show.
TEST_P(ShardGroupLayouts, LeaveWhatOneRankLeaves) {
  const LayoutCase& c = GetParam();
  const TrainConfig config = config_of(c);
  const std::vector<RunRecord>& one = serial_of(config, kGroupSteps, parts_of_one(c));
  EXPECT_TRUE(same_steps(one, run_layout({.ranks = c.ranks(), .virtual_time = c.virtual_time},
                                         config, kGroupSteps, parts_over_mesh(c))));
}

// Whatever its directions and stores, each element is written by one rank.
TEST_P(ShardGroupLayouts, AreWrittenOnce) {
  const LayoutCase& c = GetParam();
  std::int64_t expected = 0;
  launch(launch_options({.ranks = 1}), [&](const Rank& rank) {
    TrainConfig alone = config_of(c);
    alone.pp = alone.tp = alone.cp = alone.ep = 1;
    const Trainer trainer(rank, alone, parts_of_one(c));
    for (const ParameterStore* store : trainer.stores()) expected += store->parameter_count();
  });
  launch(launch_options({.ranks = c.ranks()}), [&](const Rank& rank) {
    const Trainer trainer(rank, config_of(c), parts_over_mesh(c));
    std::int64_t written = 0;
    for (const OptimizerSlice& slice : trainer.optimizer().slices())
      if (trainer.writes(slice)) written += slice.weight.count();
    EXPECT_EQ(sum_of_all(rank.world, written), expected);
  });
}

TEST_P(ShardGroupLayouts, ArePlannedAsTheyMeasure) {
  const LayoutCase& c = GetParam();
  TrainConfig config = config_of(c);
  if (c.ep > 0 || c.update_away) return;  // choices of real routers; the host's
  config.batch = config.micro_batches * c.dp;
  const StepParts parts = parts_over_mesh(c);
  const StepBooks planned = plan_step(config, c.ranks(), parts, false).books;
  const std::vector<std::uint8_t> text = some_text();
  StepBooks measured;
  launch(launch_options({.ranks = c.ranks()}), [&](const Rank& rank) {
    Trainer trainer(rank, config, parts);
    const BatchSampler data(text, config.model.context, config.seed);
    trainer.step(data);
    rank.device.reset_peaks();
    const SentMeter meter(rank, trainer);
    trainer.step(data);
    if (rank.world.rank() == 0) measured = {rank.device.ledger(), meter.read()};
  });
  for (const Purpose p : {Purpose::Parameters, Purpose::Gradients, Purpose::Optimizer})
    EXPECT_EQ(planned.ledger[p].peak_bytes, measured.ledger[p].peak_bytes) << name_of(p);
  EXPECT_GT(planned.sent.across, 0);
  EXPECT_EQ(planned.sent.across, measured.sent.across);
  EXPECT_EQ(planned.sent.data, measured.sent.data);
  EXPECT_EQ(planned.sent.all(), measured.sent.all());
}

// Experts lie on 2 of the 4 data ranks each.
TEST(ShardGroupsOfExperts, AreRefusedWhereTheirRanksAreNotDivided) {
  const LayoutCase c{.dp = 4, .zero = 1, .ep = 2, .micro = 1, .group = 4};
  EXPECT_TRUE(error_says([&] { run_layout({.ranks = 4}, config_of(c), 1, parts_of(c)); },
                         {"sharding: groups of 4 among 2 ranks, expected a divisor of them"}));
}

}  // namespace
}  // namespace aisc
