// A GPT trained by ranks that share each sequence: the serial run, in every form, also beside data,
// tensor and sequence parallelism; and what one rank evaluates.
#include <gtest/gtest.h>

#include "06_tensor_parallel/parallel_block.h"
#include "07_sequence_parallel/context_parallel.h"
#include "07_sequence_parallel/sequence_block.h"
#include "tests/support/serial_run.h"

namespace aisc {
namespace {

// 12 heads, which all ranks divide; 13 tokens, which none does.
TrainConfig shared_sequence(int cp, int dp = 1, int tp = 1) {
  TrainConfig config = odd_training(1, tp, 5 * dp + 1);
  config.model.context = 13;
  config.cp = cp;
  return config;
}

struct FormOfRanks {
  ContextForm form;
  int cp;
};
std::ostream& operator<<(std::ostream& out, const FormOfRanks& c) {
  return out << std::vector{"ring", "zigzag", "ulysses"}[static_cast<std::size_t>(c.form)] << " "
             << c.cp;
}
class ContextParallel : public ::testing::TestWithParam<FormOfRanks> {};
INSTANTIATE_TEST_SUITE_P(
    Of, ContextParallel,
    ::testing::Values(FormOfRanks{ContextForm::Ring, 2}, FormOfRanks{ContextForm::Ring, 3},
                      FormOfRanks{ContextForm::Ring, 5}, FormOfRanks{ContextForm::Zigzag, 2},
                      FormOfRanks{ContextForm::Zigzag, 3}, FormOfRanks{ContextForm::Zigzag, 4},
                      FormOfRanks{ContextForm::Ulysses, 2}, FormOfRanks{ContextForm::Ulysses, 3},
                      FormOfRanks{ContextForm::Ulysses, 4}));

TEST_P(ContextParallel, LeavesWhatOneRankLeaves) {
  const auto [form, cp] = GetParam();
  const TrainConfig config = shared_sequence(cp);
  const std::vector<RunRecord> one = serial_steps(config);
  for (const bool virtual_time : {false, true})
    EXPECT_TRUE(same_steps(one, run_layout({.ranks = cp, .virtual_time = virtual_time}, config, 3,
                                           context_parallel(form))))
        << (virtual_time ? "in virtual time" : "by the wall's clock");
}

TEST_P(ContextParallel, LeavesItWhereMessagesAreLate) {
  const auto [form, cp] = GetParam();
  LaunchOptions options = launch_options({.ranks = cp});
  options.internals.decorate = make_late_comm;
  TrainConfig config = shared_sequence(cp);
  config.micro_batches = 2;
  config.recompute = Recompute::parse("block");
  EXPECT_TRUE(same_steps(serial_steps(config),
                         run_layout({.options = options}, config, 3, context_parallel(form))));
}

TEST_P(ContextParallel, LeavesItBesideDataAndTensorRanks) {
  const auto [form, cp] = GetParam();
  if (cp > 3) return;
  for (const auto& [dp, tp] : {std::pair{2, 1}, {1, 2}, {2, 2}}) {
    const TrainConfig config = shared_sequence(cp, dp, tp);
    StepParts parts = context_parallel(form);
    if (tp > 1) parts = tensor_parallel(std::move(parts));
    EXPECT_TRUE(
        same_steps(serial_steps(config), run_layout({.ranks = dp * cp * tp}, config, 3, parts)))
        << "dp " << dp << " tp " << tp;
  }
}

// Each rank's 12 of 24 tokens are shared once more, over its tensor ranks.
TEST(ContextAndSequenceParallel, LeaveWhatOneRankLeaves) {
  for (const ContextForm form : {ContextForm::Ring, ContextForm::Zigzag, ContextForm::Ulysses}) {
    TrainConfig config = shared_sequence(2, 1, 3);
    config.model.context = 24;
    EXPECT_TRUE(
        same_steps(serial_steps(config),
                   run_layout({.ranks = 6}, config, 3, sequence_parallel(context_parallel(form)))))
        << static_cast<int>(form);
  }
}

TEST_P(ContextParallel, EvaluatesWhatOneRankEvaluates) {
  const auto [form, cp] = GetParam();
  const std::vector<std::uint8_t> text = some_text();
  const auto evaluated = [&](const TrainConfig& config, const StepParts& parts) {
    double loss = 0;
    launch(launch_options({.ranks = config.cp}), [&](const Rank& rank) {
      Trainer trainer(rank, config, parts);
      const BatchSampler data(text, config.model.context, config.seed);
      std::vector<Batch> windows;
      windows.push_back(data.batch(rank.device, 0, 3));
      windows.push_back(data.batch(rank.device, 7, 2));
      const double found = trainer.evaluate(windows);
      if (rank.world.rank() == 0) loss = found;
    });
    return loss;
  };
  const double one = evaluated(shared_sequence(1), {});
  EXPECT_NEAR(evaluated(shared_sequence(cp), context_parallel(form)), one, 1e-12 * one);
}

}  // namespace
}  // namespace aisc
