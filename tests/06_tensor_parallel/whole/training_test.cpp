// A GPT trained by ranks that share each layer: the serial run, beside data parallelism, stages of
// a pipeline and shards.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "04_sharding/sharded_units.h"
#include "05_pipeline/pipelined.h"
#include "06_tensor_parallel/parallel_block.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/run_layout.h"

namespace aisc {
namespace {

TrainConfig config_of(int tp, int pp = 1, int dp = 1) {
  TrainConfig c;
  c.model = odd_config(DType::F64, 0.1);
  c.model.layers = 3;
  c.model.heads = 12;  // of 3 columns
  c.model.width = 36;
  c.gradient_dtype = DType::F64;
  c.batch = 5 * dp + 1;  // ranks with unequal shares
  c.micro_batches = 1;
  c.tp = tp;
  c.pp = pp;
  c.steps = 10;
  c.warmup_steps = 2;
  c.learning_rate = 3e-3;
  c.clip = 0.05;
  return c;
}

std::vector<RunRecord> serial(TrainConfig config, int steps = 3) {
  config.pp = config.tp = 1;
  return run_layout({.ranks = 1}, config, steps);
}

class TensorParallel : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, TensorParallel, ::testing::Values(2, 3, 4, 6));

TEST_P(TensorParallel, LeavesWhatOneRankLeaves) {
  const TrainConfig config = config_of(GetParam());
  EXPECT_TRUE(
      same_steps(serial(config), run_layout({.ranks = config.tp}, config, 3, tensor_parallel())));
}

TEST_P(TensorParallel, LeavesItInVirtualTimeToo) {
  const TrainConfig config = config_of(GetParam());
  EXPECT_TRUE(same_steps(serial(config), run_layout({.ranks = config.tp, .virtual_time = true},
                                                    config, 3, tensor_parallel())));
}

TEST_P(TensorParallel, RecomputesWhatItIsAskedTo) {
  for (const char* what : {"core", "block", "every:2"}) {
    TrainConfig config = config_of(GetParam());
    config.recompute = Recompute::parse(what);
    EXPECT_TRUE(same_steps(serial(config, 2),
                           run_layout({.ranks = config.tp}, config, 2, tensor_parallel())))
        << what;
  }
}

// Rounding of shares and their sums: a loss of about ln 13 by that much.
constexpr double kF32Losses = 1e-5;
constexpr double kBF16Losses = 0.02;

TEST(TensorParallelInShorterTypes, StaysNearTheSerialRun) {
  const auto distance = [](DType dtype, int tp) {
    TrainConfig config = config_of(tp);
    config.model.dtype = config.gradient_dtype = dtype;
    const std::vector<RunRecord> one = serial(config, 5);
    const std::vector<RunRecord> split = run_layout({.ranks = tp}, config, 5, tensor_parallel());
    double worst = 0;
    for (std::size_t i = 0; i < one.size(); ++i)
      worst = std::max(worst, std::abs(one[i].losses[i] - split[i].losses[i]));
    return worst;
  };
  for (const int tp : {2, 3}) {
    EXPECT_LT(distance(DType::F32, tp), kF32Losses) << tp << " ranks";
    EXPECT_LT(distance(DType::BF16, tp), kBF16Losses) << tp << " ranks";
  }
}

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
  TrainConfig config = config_of(g.tp, g.pp, g.dp);
  config.micro_batches = g.micro_batches;
  config.batch = 2 * g.dp * g.micro_batches;
  StepParts parts = g.zero > 0 ? sharded({.stage = g.zero}) : StepParts();
  if (g.pp > 1) parts = pipelined({}, std::move(parts));
  EXPECT_TRUE(same_steps(serial(config), run_layout({.ranks = g.dp * g.pp * g.tp}, config, 3,
                                                    tensor_parallel(std::move(parts)))));
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
  TrainConfig config = config_of(g.tp, g.pp, g.dp), alone = config_of(1);
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
