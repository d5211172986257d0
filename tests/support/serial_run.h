// Training that is to be the serial run: sizes at which mistakes show, and the comparison.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/host_values.h"
#include "common/model/emulated_device.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/conformance.h"
#include "tests/support/delayed_comm.h"
#include "tests/support/late_comm.h"
#include "tests/support/run_layout.h"

namespace aisc {

// A small GPT with sizes that do not divide, dropout on; each step's gradients are clipped. 21
// samples: over 2 and 4 ranks the shares differ by one, over 3 and 7 they do not.
inline TrainConfig odd_training(std::int64_t micro_batches = 1,
                                const std::string& recompute = "none", DType dtype = DType::F64) {
  TrainConfig c;
  c.model = odd_config(dtype, 0.1);
  c.gradient_dtype = dtype;
  c.recompute = Recompute::parse(recompute);
  c.batch = 21;
  c.micro_batches = micro_batches;
  c.steps = 10;
  c.warmup_steps = 2;
  c.learning_rate = 3e-3;
  c.clip = 0.05;
  return c;
}

// Of stages and parts of layers: as many blocks, and heads of 3 columns, which both divide.
inline TrainConfig odd_training(int pp, int tp, std::int64_t batch, std::int64_t micro_batches = 1,
                                std::int64_t layers = 3) {
  TrainConfig c = odd_training(micro_batches);
  c.model.layers = layers;
  if (tp > 0) {
    c.model.heads = 12;
    c.model.width = 36;
  }
  c.batch = batch;
  c.pp = pp;
  c.tp = std::max(tp, 1);
  return c;
}

// What one rank leaves, step by step.
inline std::vector<RunRecord> serial_steps(TrainConfig config, int steps = 3) {
  config.pp = config.tp = config.cp = 1;
  return run_layout({.ranks = 1}, config, steps);
}

// Beside Trainer's own: all ranks' weights, where each has them whole, are the same to the last bit
// after every step.
struct CheckedTrainer {
  CheckedTrainer(const Rank& own, const TrainConfig& config, const StepParts& parts)
      : rank(own), trainer(rank, config, parts), all_values(parts.all_values) {}
  StepReport step(const BatchSampler& data) {
    const StepReport report = trainer.step(data);
    if (all_values) {
      std::vector<double> mine = to_doubles(trainer.parameters().values());
      std::string text(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof mine[0]);
      for (const std::string& other : all_texts(rank.world, text))
        EXPECT_TRUE(other == text) << "rank " << rank.world.rank() << ": another has other weights";
    }
    return report;
  }
  const Optimizer& optimizer() const { return trainer.optimizer(); }
  Rank rank;
  Trainer trainer;
  bool all_values;
};

// Data-parallel runs of odd_training() on GetParam() ranks.
class AgainstSerial : public ::testing::TestWithParam<int> {
 protected:
  // 3 where each rank has samples enough.
  static std::int64_t several(int ranks = GetParam()) { return ranks * 3 > 21 ? 1 : 3; }

  // After 3 steps.
  void expect_serial(const RankLayout& layout, const TrainConfig& config, const StepParts& parts) {
    EXPECT_TRUE(same_steps(serial_, run_layout<CheckedTrainer>(layout, config, 3, parts)));
  }
  // On as many ranks, as threads.
  void expect_serial(const TrainConfig& config, const StepParts& parts) {
    expect_serial({.ranks = GetParam()}, config, parts);
  }
  void expect_serial_in_virtual_time(const TrainConfig& config, const StepParts& parts) {
    const Machine machine = find_machine("dgx-a100");
    expect_serial({.options = on_machine(machine, GetParam(), {.poison = true})}, config, parts);
  }
  // Nothing is over before it is waited for; and everything comes in an order that it seldom comes
  // in.
  void expect_serial_when_late(const TrainConfig& config, const StepParts& parts) {
    LaunchOptions options = launch_options({.ranks = GetParam()});
    options.internals.decorate = make_late_comm;
    expect_serial({.options = options}, config, parts);
  }
  void expect_serial_when_delayed(const TrainConfig& config, const StepParts& parts) {
    LaunchOptions options = launch_options({.ranks = GetParam()});
    options.internals.decorate = [](std::unique_ptr<Communicator> world) {
      return make_delayed_comm(std::move(world), 5);
    };
    expect_serial({.options = options}, config, parts);
  }

 private:
  const std::vector<RunRecord> serial_ = serial_steps(odd_training());
};

}  // namespace aisc
