// Experts in training: ranks that share them leave what one rank leaves that has them all, and what
// their layers add to the loss is the same wherever it is added.
#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "common/train/trainer.h"
#include "tests/support/error_says.h"
#include "tests/support/serial_run.h"
#include "tests/train/toy_experts.h"

namespace aisc {
namespace {

TrainConfig with_experts(std::int64_t count, int ep, std::int64_t micro_batches = 1) {
  TrainConfig config = odd_training(micro_batches);
  config.model.layers = 3;
  config.model.experts = {.count = count, .every = 1};
  config.ep = ep;
  return config;
}

// Reports both losses: what a rank says of them is compared as one number a step.
struct BothLosses {
  BothLosses(const Rank& rank, const TrainConfig& config, const StepParts& parts = toy_experts())
      : trainer(rank, config, parts) {}
  StepReport step(const BatchSampler& data) {
    StepReport report = trainer.step(data);
    EXPECT_GT(report.extra, 1e-3);
    EXPECT_GT(report.gradient_norm, trainer.config().clip) << "nothing is clipped";
    report.loss += 10 * report.extra;
    return report;
  }
  const Optimizer& optimizer() const { return trainer.optimizer(); }
  Trainer trainer;
};

std::vector<RunRecord> run_experts(int ranks, const TrainConfig& config,
                                   const StepParts& parts = toy_experts()) {
  return run_layout<BothLosses>({.ranks = ranks}, config, 3, parts);
}

TEST(TrainerWithExperts, OnRanksIsTheSerialRun) {
  const std::vector<RunRecord> serial = run_experts(1, with_experts(6, 1));
  struct Layout {
    int ranks, ep;
    std::int64_t micro_batches;
  };
  for (const auto& [ranks, ep, micro_batches] :
       {Layout{1, 1, 3}, {3, 1, 1}, {2, 2, 1}, {4, 2, 3}, {3, 3, 7}, {6, 3, 1}, {6, 2, 3}})
    EXPECT_TRUE(same_steps(serial, run_experts(ranks, with_experts(6, ep, micro_batches))))
        << ranks << " ranks, ep " << ep << ", " << micro_batches << " micro-batches";
}

TEST(TrainerWithExperts, OfRecomputedBlocksIsTheSerialRun) {
  const std::vector<RunRecord> serial = run_experts(1, with_experts(4, 1));
  for (const std::int64_t blocks : {1, 2}) {
    TrainConfig config = with_experts(4, 2, 3);
    config.recompute.blocks = blocks;
    EXPECT_TRUE(same_steps(serial, run_experts(4, config))) << blocks << " at a time";
  }
}

// Not each rank's experts for themselves.
TEST(TrainerWithExperts, EvaluatesWithAllOfThem) {
  const std::vector<std::uint8_t> text = some_text();
  const auto loss_of = [&](int ranks, int ep) {
    double loss = 0;
    std::mutex mutex;
    launch(launch_options({.ranks = ranks}), [&](Rank rank) {
      const TrainConfig config = with_experts(4, ep);
      Trainer trainer(rank, config, toy_experts());
      const BatchSampler data(text, config.model.context, 2);
      std::vector<Batch> windows;  // rank 0 has none, the last has most
      for (int i = 0; i < (ranks == 1 ? 6 : rank.world.rank()); ++i)
        windows.push_back(
            data.batch(rank.device,
                       (ranks == 1 ? 0 : rank.world.rank() * (rank.world.rank() - 1) / 2) + i, 1));
      const double mine = trainer.evaluate(windows);
      const std::lock_guard lock(mutex);
      loss = mine;
    });
    return loss;
  };
  EXPECT_NEAR(loss_of(4, 2), loss_of(1, 1), 1e-12);
}

// The all-reduce that has the loss has both; a dense model's is as long as ever.
TEST(TrainerWithExperts, ReportWhatLayersAddBesideTheLoss) {
  const std::vector<std::uint8_t> text = some_text();
  launch(launch_options({.ranks = 2}), [&](Rank rank) {
    const TrainConfig config = with_experts(4, 1);
    Trainer trainer(rank, config, toy_experts());
    const BatchSampler data(text, config.model.context, config.seed);
    const StepReport report = trainer.step(data);
    EXPECT_NEAR(report.loss, std::log(13.0), 0.5) << "cross entropy alone";
    std::int64_t gradients = 0;
    for (const ParameterStore* store : trainer.stores()) gradients += store->layout().count();
    EXPECT_EQ(trainer.stores().size(), 2u);
    EXPECT_EQ(rank.world.stats()[CommOp::AllReduce].payload_bytes, 8 * gradients + 48)
        << "six numbers of each rank beside them";
  });
}

TEST(TrainerWithExperts, MakesTheWholeModelOnOneRank) {
  launch(launch_options({.ranks = 4}), [&](Rank rank) {
    const TrainConfig config = with_experts(8, 4);
    const Trainer trainer(rank, config, toy_experts());
    const Model whole = make_gpt(rank, config.model, trainer.whole_parts());
    const std::vector<Unit> experts = make_units(whole, Sync::ExpertData);
    ASSERT_EQ(experts.size(), 3u);
    EXPECT_EQ(experts[0].parameters[0]->shape, (Shape{8, 3, 15}));
    EXPECT_EQ(trainer.stores()[1]->parameters()[0]->shape, (Shape{2, 3, 15}));
    EXPECT_EQ(trainer.stores()[1]->parameters()[0]->global_shape, (Shape{8, 3, 15}));
  });
}

}  // namespace
}  // namespace aisc
