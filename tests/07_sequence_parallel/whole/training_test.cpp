// A GPT trained by tensor ranks that share the tokens between its layers: the serial run, also
// beside data parallelism; and that what they have copies of stays the same on all of them.
// (Beside stages and shards: module 11.)
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "06_tensor_parallel/parallel_block.h"
#include "07_sequence_parallel/g_and_g_bar.h"
#include "07_sequence_parallel/sequence_block.h"
#include "tests/support/error_says.h"
#include "tests/support/serial_run.h"

namespace aisc {
namespace {

// 12 tokens, which all tensor ranks divide; samples that data ranks do not.
TrainConfig config_of(int tp, int dp = 1) {
  TrainConfig config = odd_training(1, tp, 5 * dp + 1);
  config.model.context = 12;
  return config;
}

class SequenceParallel : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, SequenceParallel, ::testing::Values(2, 3, 4, 6));

TEST_P(SequenceParallel, LeavesWhatOneRankLeaves) {
  const TrainConfig config = config_of(GetParam());
  const std::vector<RunRecord> one = serial_steps(config);
  for (const bool virtual_time : {false, true})
    EXPECT_TRUE(same_steps(one, run_layout({.ranks = config.tp, .virtual_time = virtual_time},
                                           config, 3, sequence_parallel())))
        << (virtual_time ? "in virtual time" : "by the wall's clock");
}

TEST_P(SequenceParallel, LeavesItWhereMessagesAreLate) {
  LaunchOptions options = launch_options({.ranks = GetParam()});
  options.internals.decorate = make_late_comm;
  const TrainConfig config = config_of(GetParam());
  EXPECT_TRUE(same_steps(serial_steps(config),
                         run_layout({.options = options}, config, 3, sequence_parallel())));
}

TEST_P(SequenceParallel, RecomputesWhatItIsAskedTo) {
  for (const char* what : {"core", "block", "every:2"}) {
    TrainConfig config = config_of(GetParam());
    config.recompute = Recompute::parse(what);
    EXPECT_TRUE(same_steps(serial_steps(config, 2),
                           run_layout({.ranks = config.tp}, config, 2, sequence_parallel())))
        << what;
  }
}

TEST(SequenceParallelBesideData, LeavesWhatOneRankLeaves) {
  for (const auto& [dp, tp] : {std::pair{2, 2}, {3, 2}, {2, 3}}) {
    TrainConfig config = config_of(tp, dp);
    config.batch = 2 * dp;
    config.micro_batches = 2;
    EXPECT_TRUE(same_steps(serial_steps(config),
                           run_layout({.ranks = dp * tp}, config, 3, sequence_parallel())))
        << "dp " << dp << " tp " << tp;
  }
}

// What f and g send, and what backward gathers once more; fewer bytes are kept between the layers.
TEST(SequenceParallelBooks, SendOneGatherMoreAColumnLayerAndKeepLess) {
  const auto books = [](const StepParts& parts, int tp) {
    TrainConfig config = config_of(tp);
    config.model.layers = 4;
    struct {
      std::int64_t sent = 0, kept = 0;
    } found;
    const std::vector<std::uint8_t> text = some_text();
    launch({.ranks = tp, .plans = default_plans(), .bind = false}, [&](const Rank& rank) {
      Trainer trainer(rank, config, parts);
      const BatchSampler data(text, config.model.context, config.seed);
      trainer.step(data);
      rank.device.reset_peaks();
      const CommStats before = trainer.mesh()->tp().stats();
      trainer.step(data);
      if (rank.world.rank() > 0) return;
      found.sent = trainer.mesh()->tp().stats().sent().wire_bytes - before.sent().wire_bytes;
      found.kept = rank.device.ledger()[Purpose::Activations].peak_bytes;
    });
    return found;
  };
  for (const int tp : {2, 4}) {
    const auto whole = books(tensor_parallel(), tp), shared = books(sequence_parallel(), tp);
    const TrainConfig config = config_of(tp);
    // Once more are gathered: in backward the inputs of two column layers a block, and the head's.
    const std::int64_t tensor = config.batch * config.model.context * config.model.width * 8;
    EXPECT_EQ(shared.sent - whole.sent, (2 * 4 + 1) * tensor * (tp - 1) / tp) << tp;
    EXPECT_LT(static_cast<double>(shared.kept), 0.85 * static_cast<double>(whole.kept)) << tp;
  }
}

TEST(SequenceParallelTokens, AreNamedWhereTheyDoNotDivide) {
  launch({.ranks = 2, .bind = false}, [&](const Rank& rank) {
    const Tensor x = Tensor::zeros({2, 5, 1}, DType::F64, rank.device);
    EXPECT_TRUE(error_says(
        [&] { begin_through(SequenceConjugate::GBar, Direction::Forward, rank.world, x); },
        {"5 tokens over 2 ranks of world: expected a multiple of 2"}));
  });
}

}  // namespace
}  // namespace aisc
