// Training in shards, of every stage and with every knob: whatever the ranks, the serial run.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "03_data_parallel/average.h"
#include "03_data_parallel/layered.h"
#include "04_sharding/sharded_units.h"
#include "common/model/emulated_device.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/conformance.h"
#include "tests/support/delayed_comm.h"
#include "tests/support/error_says.h"
#include "tests/support/late_comm.h"
#include "tests/support/run_layout.h"

namespace aisc {
namespace {

// 21 samples: over 2 and 4 ranks the shares differ by one.
TrainConfig config_of_training(std::int64_t micro_batches = 1,
                               const std::string& recompute = "none") {
  TrainConfig c;
  c.model = odd_config(DType::F64, 0.1);
  c.gradient_dtype = DType::F64;
  c.recompute = Recompute::parse(recompute);
  c.batch = 21;
  c.micro_batches = micro_batches;
  c.steps = 10;
  c.warmup_steps = 2;
  c.learning_rate = 3e-3;
  c.clip = 0.05;
  return c;
}

StepParts parts_of(const ShardOptions& options, const MicroBatchLoop& loop = one_after_another) {
  StepParts parts = sharded(options);
  parts.loop = loop;
  return parts;
}

// Beside Trainer's own: all ranks' whole weights, where there are any, are the same to the last bit
// after every step, and nothing of a unit is left where it is to be freed.
struct ShardedTrainer {
  ShardedTrainer(const Rank& own, const TrainConfig& config, const StepParts& parts)
      : rank(own), trainer(rank, config, parts), all_values(parts.all_values) {}
  StepReport step(const BatchSampler& data) {
    const StepReport report = trainer.step(data);
    if (all_values) require_equal_weights(rank.world, trainer.parameters().values());
    return report;
  }
  const Optimizer& optimizer() const { return trainer.optimizer(); }
  Rank rank;
  Trainer trainer;
  bool all_values;
};

class Sharding : public ::testing::TestWithParam<int> {
 protected:
  // 3 where each rank has samples enough.
  std::int64_t micro_batches() const { return GetParam() * 3 > 21 ? 1 : 3; }
  // After 3 steps.
  void expect_serial(const RankLayout& layout, const TrainConfig& config, const StepParts& parts) {
    EXPECT_TRUE(same_steps(serial_, run_layout<ShardedTrainer>(layout, config, 3, parts)));
  }

 private:
  const std::vector<RunRecord> serial_ = run_layout(RankLayout{}, config_of_training(), 3);
};
INSTANTIATE_TEST_SUITE_P(Ranks, Sharding, ::testing::ValuesIn(conformance::rank_counts()),
                         ::testing::PrintToStringParamName());

TEST_P(Sharding, IsTheSerialRunInEveryStage) {
  for (const int stage : {1, 2, 3}) {
    SCOPED_TRACE("stage " + std::to_string(stage));
    expect_serial({.ranks = GetParam()}, config_of_training(), parts_of({.stage = stage}));
    expect_serial({.ranks = GetParam()}, config_of_training(micro_batches()),
                  parts_of({.stage = stage}));
    expect_serial({.ranks = GetParam()}, config_of_training(micro_batches(), "block"),
                  parts_of({.stage = stage}, layered));
  }
}

TEST_P(Sharding, IsTheSerialRunWithEveryKnob) {
  const GatherOptions gathers[] = {{.prefetch = 0},
                                   {.prefetch = 3, .live = 6000},
                                   {.prefetch = 0, .reuse = 3000},
                                   {.reuse = GatherOptions::kAll},
                                   {.persist = 600},
                                   {.persist = GatherOptions::kAll}};
  for (const GatherOptions& gather : gathers)
    expect_serial({.ranks = GetParam()}, config_of_training(micro_batches()),
                  parts_of({.stage = 3, .gather = gather}));
  for (const int stage : {1, 2, 3})
    expect_serial({.ranks = GetParam()}, config_of_training(micro_batches()),
                  parts_of({.stage = stage, .bucket = 40 * GetParam()}));
}

TEST_P(Sharding, IsTheSerialRunInVirtualTime) {
  const Machine machine = find_machine("dgx-a100");
  for (const int stage : {1, 2, 3})
    expect_serial({.options = on_machine(machine, GetParam(), {.poison = true})},
                  config_of_training(micro_batches(), "block"), parts_of({.stage = stage}));
}

// Nothing is over before it is waited for; and everything comes in an order that it seldom comes
// in.
TEST_P(Sharding, WaitsForWhatItReads) {
  LaunchOptions options = launch_options({.ranks = GetParam()});
  for (const int stage : {1, 2, 3}) {
    options.internals.decorate = make_late_comm;
    expect_serial({.options = options}, config_of_training(micro_batches()),
                  parts_of({.stage = stage}));
    options.internals.decorate = [](std::unique_ptr<Communicator> world) {
      return make_delayed_comm(std::move(world), 5);
    };
    expect_serial({.options = options}, config_of_training(),
                  parts_of({.stage = stage, .gather = {.prefetch = 2}}));
  }
}

}  // namespace
}  // namespace aisc
