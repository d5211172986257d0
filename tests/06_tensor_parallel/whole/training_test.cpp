// A GPT trained by ranks that share each layer: the serial run, also beside data parallelism.
// (Beside stages and shards: module 11.)
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "06_tensor_parallel/parallel_block.h"
#include "tests/support/serial_run.h"

namespace aisc {
namespace {

// Ranks have unequal shares.
TrainConfig config_of(int tp, int dp = 1) { return odd_training(1, tp, 5 * dp + 1); }

class TensorParallel : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, TensorParallel, ::testing::Values(2, 3, 4, 6));

TEST_P(TensorParallel, LeavesWhatOneRankLeaves) {
  const TrainConfig config = config_of(GetParam());
  const std::vector<RunRecord> one = serial_steps(config);
  for (const bool virtual_time : {false, true})
    EXPECT_TRUE(same_steps(one, run_layout({.ranks = config.tp, .virtual_time = virtual_time},
                                           config, 3, tensor_parallel())))
        << (virtual_time ? "in virtual time" : "by the wall's clock");
}

TEST_P(TensorParallel, RecomputesWhatItIsAskedTo) {
  for (const char* what : {"core", "block", "every:2"}) {
    TrainConfig config = config_of(GetParam());
    config.recompute = Recompute::parse(what);
    EXPECT_TRUE(same_steps(serial_steps(config, 2),
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
    const std::vector<RunRecord> one = serial_steps(config, 5);
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
  int dp, tp;
};
std::ostream& operator<<(std::ostream& out, const Grid& g) {
  return out << "dp " << g.dp << " tp " << g.tp;
}
class DataAndTensor : public ::testing::TestWithParam<Grid> {};
INSTANTIATE_TEST_SUITE_P(Of, DataAndTensor, ::testing::Values(Grid{2, 2}, Grid{3, 2}, Grid{2, 3}));

TEST_P(DataAndTensor, LeavesWhatOneRankLeaves) {
  const Grid& g = GetParam();
  TrainConfig config = config_of(g.tp, g.dp);
  config.batch = 2 * g.dp;
  EXPECT_TRUE(same_steps(serial_steps(config),
                         run_layout({.ranks = g.dp * g.tp}, config, 3, tensor_parallel())));
}

}  // namespace
}  // namespace aisc
