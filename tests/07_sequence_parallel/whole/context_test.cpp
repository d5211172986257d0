// A GPT trained by ranks that share each sequence: the serial run, in every form, also beside data,
// tensor and sequence parallelism; and what one rank evaluates. Where scores are stored: the serial
// run that stores its own.
#include <gtest/gtest.h>

#include "06_tensor_parallel/parallel_block.h"
#include "07_sequence_parallel/context_parallel.h"
#include "07_sequence_parallel/selective.h"
#include "07_sequence_parallel/sequence_block.h"
#include "07_sequence_parallel/stored_attention.h"
#include "tests/support/error_says.h"
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

double evaluated_by_ranks(const TrainConfig& config, const StepParts& parts) {
  const std::vector<std::uint8_t> text = some_text();
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
}

TEST_P(ContextParallel, EvaluatesWhatOneRankEvaluates) {
  const auto [form, cp] = GetParam();
  const double one = evaluated_by_ranks(shared_sequence(1), {});
  EXPECT_NEAR(evaluated_by_ranks(shared_sequence(cp), context_parallel(form)), one, 1e-12 * one);
}

// 12 tokens, which all ranks divide.
TrainConfig shared_scores(int cp, int dp = 1, int tp = 1) {
  TrainConfig config = shared_sequence(cp, dp, tp);
  config.model.context = 12;
  return config;
}
StepParts ring_of_scores() { return context_parallel(ContextForm::Rsa, stored_attention()); }
// What one rank that stores its scores leaves.
std::vector<RunRecord> stored_steps(TrainConfig config) {
  config.tp = config.cp = 1;
  return run_layout({.ranks = 1}, config, 3, stored_attention());
}

class SharedScores : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, SharedScores, ::testing::Values(2, 3, 4));

TEST_P(SharedScores, LeaveWhatOneRankLeaves) {
  const TrainConfig config = shared_scores(GetParam());
  const std::vector<RunRecord> one = stored_steps(config);
  EXPECT_FALSE(same_steps(serial_steps(config), one)) << "probabilities are dropped out";
  for (const bool virtual_time : {false, true})
    EXPECT_TRUE(same_steps(one, run_layout({.ranks = config.cp, .virtual_time = virtual_time},
                                           config, 3, ring_of_scores())))
        << (virtual_time ? "in virtual time" : "by the wall's clock");
}

// The core's budget is that of three of the four cores of a step: the fourth is made again.
TEST_P(SharedScores, LeaveItWhereMessagesAreLateAndCoresRunAgain) {
  const int cp = GetParam();
  LaunchOptions options = launch_options({.ranks = cp});
  options.internals.decorate = make_late_comm;
  TrainConfig config = shared_scores(cp);
  config.micro_batches = 2;
  config.model.layers = 4;
  const std::vector<RunRecord> one = stored_steps(config);
  const std::int64_t samples = config.batch / 2, T = 12, C = config.model.width,
                     H = config.model.heads;
  const std::int64_t of_a_core = (samples * T * 3 * C * 8 + samples * H * T * T * (8 + 1 + 8)) / cp;
  struct {
    const char* again;
    std::int64_t keep_bytes;
    StepParts inner;
  } cases[] = {{"none", 0, stored_attention()},
               {"block", 0, stored_attention()},
               {"core", 0, stored_attention()},
               {"core", 3 * of_a_core, selective_recomputation(stored_attention())}};
  for (const auto& [again, keep_bytes, inner] : cases) {
    config.recompute = Recompute::parse(again);
    config.recompute.keep_bytes = keep_bytes;
    EXPECT_TRUE(same_steps(one, run_layout({.options = options}, config, 3,
                                           context_parallel(ContextForm::Rsa, inner))))
        << again << ", " << keep_bytes << " bytes are kept";
  }
}

TEST_P(SharedScores, LeaveItBesideDataAndTensorRanks) {
  const int cp = GetParam();
  struct {
    int dp, tp;
    StepParts parts;
  } cases[] = {{2, 1, ring_of_scores()},
               {1, 2, tensor_parallel(ring_of_scores())},
               {2, 2, sequence_parallel(ring_of_scores())}};
  for (const auto& [dp, tp, parts] : cases) {
    if (dp * cp * tp > 8 || cp > 3) continue;
    const TrainConfig config = shared_scores(cp, dp, tp);
    EXPECT_TRUE(
        same_steps(stored_steps(config), run_layout({.ranks = dp * cp * tp}, config, 3, parts)))
        << "dp " << dp << " tp " << tp;
  }
}

TEST_P(SharedScores, AreEvaluatedAsOnOneRank) {
  const double one = evaluated_by_ranks(shared_scores(1), stored_attention());
  EXPECT_NEAR(evaluated_by_ranks(shared_scores(GetParam()), ring_of_scores()), one, 1e-12 * one);
}

TEST(SharedScoresOfTokens, AreNamedWhereTheyDoNotDivide) {
  launch(launch_options({.ranks = 2}), [](const Rank& rank) {
    rank.device.reset_peaks();
    EXPECT_TRUE(
        error_says([&] { Trainer(rank, shared_sequence(2), ring_of_scores()); },
                   {"attention", "13 tokens over 2 ranks of cp: expected a multiple of 2"}));
    EXPECT_EQ(rank.device.ledger().total.peak_bytes, 0) << "said before anything is allocated";
  });
}

}  // namespace
}  // namespace aisc
