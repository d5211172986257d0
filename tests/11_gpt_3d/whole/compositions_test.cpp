// Techniques in one step: shards of stages, and ranks that share layers beside stages and shards.
// Each is the serial run; modules 05 and 06, which do not know of each other, test themselves
// alone.
#include <gtest/gtest.h>

#include <cstdint>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "04_sharding/sharded_units.h"
#include "05_pipeline/pipelined.h"
#include "06_tensor_parallel/parallel_block.h"
#include "tests/support/serial_run.h"

namespace aisc {
namespace {

TrainConfig config_of(int dp, int pp, int tp) { return odd_training(pp, tp, 2 * dp); }

// Ranks that have the same stages divide what they hold of them.
struct ShardedStages {
  int dp, pp, zero;
  std::string schedule;
  std::int64_t layers = 5;
};
std::ostream& operator<<(std::ostream& out, const ShardedStages& g) {
  return out << "dp " << g.dp << " pp " << g.pp << " zero " << g.zero << " " << g.schedule << ", "
             << g.layers << " blocks";
}
class ShardsAndStages : public ::testing::TestWithParam<ShardedStages> {};

TEST_P(ShardsAndStages, LeaveWhatOneRankLeaves) {
  const ShardedStages& g = GetParam();
  const bool interleaves = g.schedule == "interleaved";
  TrainConfig config = config_of(g.dp, g.pp, 1);
  config.model.layers = g.layers;
  config.micro_batches = interleaves ? 2 : 3;
  config.batch = interleaves ? 10 : 9;  // two pipelines: micro-batches of 2 and 3, or of 1 and 2
  const PipelineChoice choice{.schedule = g.schedule, .chunks = interleaves ? 2 : 1};
  EXPECT_TRUE(same_steps(serial_steps(config, 2),
                         run_layout({.ranks = g.dp * g.pp}, config, 2,
                                    pipelined(choice, sharded({.stage = g.zero})))));
}
INSTANTIATE_TEST_SUITE_P(
    Grids, ShardsAndStages,
    ::testing::Values(ShardedStages{2, 2, 1, "1f1b"}, ShardedStages{2, 2, 1, "zb-h1"},
                      ShardedStages{2, 2, 1, "zb-v"}, ShardedStages{2, 2, 2, "1f1b"},
                      ShardedStages{3, 2, 3, "1f1b"}, ShardedStages{2, 2, 3, "gpipe"},
                      ShardedStages{2, 2, 3, "interleaved"},
                      // The embedding is a stage alone, and the head.
                      ShardedStages{2, 4, 1, "1f1b", 2}, ShardedStages{2, 4, 3, "1f1b", 2},
                      ShardedStages{2, 2, 2, "interleaved", 2}));

struct Grid {
  int dp, pp, tp, zero = 0, micro_batches = 1;
};
std::ostream& operator<<(std::ostream& out, const Grid& g) {
  return out << "dp " << g.dp << " pp " << g.pp << " tp " << g.tp << " zero " << g.zero << " m "
             << g.micro_batches;
}
class Meshes : public ::testing::TestWithParam<Grid> {};
INSTANTIATE_TEST_SUITE_P(Of, Meshes,
                         ::testing::Values(Grid{2, 1, 2}, Grid{3, 1, 2}, Grid{2, 1, 3},
                                           Grid{1, 2, 2}, Grid{1, 3, 2, 0, 3}, Grid{2, 2, 2},
                                           Grid{2, 2, 2, 0, 2}, Grid{2, 1, 2, 1}, Grid{2, 1, 2, 2},
                                           Grid{2, 1, 2, 3}, Grid{3, 1, 2, 3, 2},
                                           Grid{2, 2, 2, 1, 2}));

TEST_P(Meshes, LeaveWhatOneRankLeaves) {
  const Grid& g = GetParam();
  TrainConfig config = config_of(g.dp, g.pp, g.tp);
  config.micro_batches = g.micro_batches;
  config.batch = 2 * g.dp * g.micro_batches;
  StepParts parts = g.zero > 0 ? sharded({.stage = g.zero}) : StepParts();
  if (g.pp > 1) parts = pipelined({}, std::move(parts));
  EXPECT_TRUE(same_steps(
      serial_steps(config, 3),
      run_layout({.ranks = g.dp * g.pp * g.tp}, config, 3, tensor_parallel(std::move(parts)))));
}

TEST_P(Meshes, CountTheNormAndTheLossOfTheWholeModelOnce) {
  const Grid& g = GetParam();
  const std::vector<std::uint8_t> text = some_text();
  const auto reports = [&](const TrainConfig& config, int ranks, const StepParts& parts) {
    std::vector<double> found;
    launch(launch_options({.ranks = ranks}), [&](Rank rank) {
      Trainer trainer(rank, config, parts);
      const BatchSampler data(text, config.model.context, config.seed);
      const StepReport report = trainer.step(data);
      std::vector<Batch> windows;
      // Ranks of the same share of the batch have the same windows, others have others.
      const int share = trainer.data_ranks().rank();
      for (std::int64_t w = share; w < 3; w += trainer.data_ranks().size())
        windows.push_back(data.batch(rank.device, 2 * w, 2));
      const double evaluated = trainer.evaluate(windows);
      if (rank.world.rank() == 0) found = {report.loss, report.gradient_norm, evaluated};
    });
    return found;
  };
  TrainConfig config = config_of(g.dp, g.pp, g.tp), alone = config_of(1, 1, 1);
  config.micro_batches = g.micro_batches;
  config.batch = alone.batch = 2 * g.dp * g.micro_batches;
  StepParts parts = g.zero > 0 ? sharded({.stage = g.zero}) : StepParts();
  if (g.pp > 1) parts = pipelined({}, std::move(parts));
  const auto expected = reports(alone, 1, {}),
             found = reports(config, g.dp * g.pp * g.tp, tensor_parallel(std::move(parts)));
  for (std::size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 1e-12 * expected[i]) << i;
}

}  // namespace
}  // namespace aisc
