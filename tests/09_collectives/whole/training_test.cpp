// Training on collectives that module 09 has chosen is training: each of its all-reduce algorithms
// in the place of the backend's own gives the serial run's losses, gradients and weights.
#include <gtest/gtest.h>

#include <mutex>

#include "09_collectives/cost.h"
#include "common/comm/launch.h"
#include "common/train/trainer.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/same_run.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

constexpr int kSteps = 3;

TrainConfig config() {
  TrainConfig c;
  c.model = odd_config(DType::F64, 0.1);
  c.gradient_dtype = DType::F64;
  c.batch = 21;
  c.steps = 10;
  c.warmup_steps = 2;
  c.learning_rate = 3e-3;
  c.clip = 0.05;
  return c;
}

// What rank 0 is left with, and what it has sent.
struct Trained {
  RunRecord record;
  CommStats stats;
};
Trained train(LaunchOptions options) {
  std::vector<std::uint8_t> text(500);
  for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<std::uint8_t>(i * i % 13);
  options.bind = false;
  Trained result;
  std::mutex mutex;
  launch(options, [&](Rank rank) {
    Trainer trainer(rank, config());
    const BatchSampler data(text, config().model.context, config().seed);
    RunRecord record;
    for (int i = 0; i < kSteps; ++i) record.losses.push_back(trainer.step(data).loss);
    for (const Parameter* p : trainer.parameters().parameters()) {
      record.gradients[p->name] = to_doubles(p->grad());
      record.weights[p->name] = to_doubles(p->value());
    }
    if (rank.world.rank() != 0) return;
    const std::lock_guard lock(mutex);
    result = {std::move(record), rank.world.stats()};
  });
  return result;
}

TEST(ChosenPlans, TrainLikeTheSerialRun) {
  const RunRecord serial = train({.ranks = 1}).record;
  const Network network{.link = {5e-6, 1 / 12.5e9}, .reduce_seconds_per_byte = 1 / 100e9};
  for (const int ranks : {3, 4, 7}) {
    LaunchOptions options{.ranks = ranks};
    options.plans = chosen_plans(network);
    const Trained chosen = train(options);
    EXPECT_TRUE(same_run(serial, chosen.record, kSameRunF64)) << ranks << " ranks";
    EXPECT_GT(chosen.stats.steps, 0) << "no plan ran";
  }
}

TEST(ChosenPlans, TrainOnEveryAllReduce) {
  const RunRecord serial = train({.ranks = 1}).record;
  for (const Algorithm& algorithm : algorithms()) {
    if (algorithm.op != CommOp::AllReduce) continue;
    LaunchOptions options{.ranks = 5};
    options.plans[CommOp::AllReduce] = plan_maker(algorithm, {.segments = 3, .ranks_per_node = 2});
    EXPECT_TRUE(same_run(serial, train(options).record, kSameRunF64)) << algorithm.name;
  }
}

}  // namespace
}  // namespace aisc
