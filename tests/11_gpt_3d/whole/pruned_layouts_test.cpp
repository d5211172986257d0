// Pruning on ranks that have copies, shards, stages and parts of layers: the serial run, with the
// same zeros. Magnitudes are ranked over the parts of a matrix that ranks have.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "10_model_compression/pruned_training.h"
#include "tests/11_gpt_3d/whole/layout_cases.h"

namespace aisc {
namespace {

constexpr int kPrunedSteps = 3;
constexpr PruneSchedule kPruned{.sparsity = 0.85, .begin = 0, .end = 2, .rounds = 2};

class PrunedLayouts : public ::testing::TestWithParam<LayoutCase> {};
INSTANTIATE_TEST_SUITE_P(
    Of, PrunedLayouts,
    ::testing::Values(
        LayoutCase{.dp = 2}, LayoutCase{.dp = 3, .zero = 1}, LayoutCase{.dp = 2, .zero = 2},
        LayoutCase{.dp = 2, .zero = 3, .owners = true}, LayoutCase{.tp = 2},
        LayoutCase{.pp = 4, .schedule = "1f1b", .layers = 2},
        LayoutCase{.pp = 2, .schedule = "zb-v", .chunks = 2, .layers = 4},
        LayoutCase{.dp = 2, .tp = 2, .zero = 3, .sequence = true, .micro = 2},
        LayoutCase{.dp = 2, .pp = 2, .tp = 2, .zero = 2, .schedule = "1f1b", .micro = 2},
        LayoutCase{.dp = 2, .zero = 1, .cp = 2, .micro = 2},
        LayoutCase{.dp = 4, .zero = 3, .micro = 2, .group = 2},
        LayoutCase{.dp = 2, .weights_away = true}, LayoutCase{.dp = 2, .update_away = true},
        LayoutCase{.dp = 2, .tp = 2, .zero = 1, .ep = 2, .micro = 2}));

std::vector<RunRecord> pruned_run(const TrainConfig& config, int ranks, StepParts parts) {
  return run_layout({.ranks = ranks}, config, kPrunedSteps, pruned(std::move(parts), kPruned));
}

// What one rank leaves, made once for all cases with the same sizes.
const std::vector<RunRecord>& pruned_serial(TrainConfig config, const LayoutCase& c) {
  static std::map<std::vector<std::int64_t>, std::vector<RunRecord>> runs;
  config.pp = config.tp = config.cp = config.ep = 1;
  config.recompute = {};
  auto& run = runs[{config.model.layers, config.model.context, config.batch, config.micro_batches,
                    config.model.experts.count}];
  if (run.empty()) run = pruned_run(config, 1, parts_of_one(c));
  return run;
}

TEST_P(PrunedLayouts, LeaveWhatOneRankLeaves) {
  const LayoutCase& c = GetParam();
  const TrainConfig config = config_of(c);
  const std::vector<RunRecord>& serial = pruned_serial(config, c);
  EXPECT_TRUE(same_steps(serial, pruned_run(config, c.ranks(), parts_of(c))));
  for (const auto& [name, weights] : serial.back().weights) {
    if (!name.ends_with("attention.qkv.weight") && !name.ends_with("attention.project.weight"))
      continue;
    EXPECT_EQ(std::count(weights.begin(), weights.end(), 0.0),
              pruned_count(kPruned.sparsity, std::ssize(weights)))
        << name;
  }
}

}  // namespace
}  // namespace aisc
