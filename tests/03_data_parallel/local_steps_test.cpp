// Ranks that go their own way, and meet.
#include "03_data_parallel/local_steps.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "common/train/trainer.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/error_says.h"
#include "tests/support/numbers.h"
#include "tests/support/run_layout.h"

namespace aisc {
namespace {

TrainConfig config_of(DType dtype) {
  TrainConfig c;
  c.model = odd_config(dtype, 0.1);
  c.gradient_dtype = dtype;
  c.batch = 13;
  c.learning_rate = 3e-3;
  c.warmup_steps = 1;
  c.clip = 0;
  return c;
}

StepParts local(std::int64_t average_every, std::int64_t batch, bool sgd) {
  StepParts parts = local_steps(average_every, batch);
  if (sgd)
    parts.optimizer = [](const Rank&, Mesh*, ParameterStore&, std::vector<OptimizerSlice> slices,
                         const TrainConfig&) {
      return std::make_unique<Sgd>(std::move(slices), Sgd::Options{});
    };
  return parts;
}

// How far apart weights and the optimizer's state are after each of `steps` steps.
std::vector<double> divergences(int ranks, const TrainConfig& config, const StepParts& parts,
                                int steps) {
  std::vector<double> found;
  const auto text = some_text();
  launch(launch_options({.ranks = ranks}), [&](const Rank& rank) {
    Trainer trainer(rank, config, parts);
    const BatchSampler data(text, config.model.context, config.seed);
    for (int i = 0; i < steps; ++i) {
      trainer.step(data);
      double apart = divergence(rank.world, trainer.parameters().values());
      for (const Optimizer::State& state : trainer.optimizer().state())
        apart = std::max(apart, divergence(rank.world, state.value));
      if (rank.world.rank() == 0) found.push_back(apart);
    }
  });
  return found;
}

constexpr double kRounding = 1e-12;

// Every rank's losses and weights after each step.
struct Steps {
  std::vector<double> losses;
  std::vector<Tensor> weights;
};
CpuDevice& host() {
  static CpuDevice device;
  return device;
}
std::vector<Steps> steps_of(int ranks, const TrainConfig& config, const StepParts& parts,
                            int steps) {
  std::vector<Steps> all(static_cast<std::size_t>(ranks));
  const auto text = some_text();
  launch(launch_options({.ranks = ranks}), [&](const Rank& rank) {
    Trainer trainer(rank, config, parts);
    const BatchSampler data(text, config.model.context, config.seed);
    Steps& own = all[static_cast<std::size_t>(rank.world.rank())];
    for (int i = 0; i < steps; ++i) {
      own.losses.push_back(trainer.step(data).loss);
      const ConstView values = trainer.parameters().values();
      own.weights.emplace_back(values.shape(), values.dtype(), host());
      host().copy(own.weights.back(), values);
    }
  });
  return all;
}

TEST(LocalSteps, OfPlainSgdAveragedEveryStepAreTheSerialRun) {
  const TrainConfig config = config_of(DType::F64);
  const StepParts parts = local(1, config.batch, true);
  const std::vector<Steps> one = steps_of(1, config, parts, 4);
  const Steps& serial = one[0];
  for (const int ranks : {2, 3, 4}) {  // 13 samples: shares differ
    const std::vector<Steps> all = steps_of(ranks, config, parts, 4);
    for (std::size_t r = 0; r < all.size(); ++r)
      for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_NEAR(all[r].losses[i], serial.losses[i], kSameRunF64);
        EXPECT_TRUE(numbers_are(std::to_string(ranks) + " ranks, rank " + std::to_string(r) +
                                    ", step " + std::to_string(i + 1) + ": weights",
                                all[r].weights[i], to_doubles(serial.weights[i]), {}, kSameRunF64));
      }
  }
}

TEST(LocalSteps, DivergeBetweenAveragingsAndAgreeAfterThem) {
  const TrainConfig config = config_of(DType::F64);
  const std::vector<double> apart = divergences(3, config, local(3, config.batch, false), 7);
  for (std::size_t i = 0; i < apart.size(); ++i) {
    if ((i + 1) % 3 == 0) {
      EXPECT_LT(apart[i], kRounding) << "after step " << i + 1 << " weights and state are averaged";
    } else {
      EXPECT_GT(apart[i], 1e-6) << "after step " << i + 1 << " each rank is on its way";
    }
  }
}

TEST(LocalSteps, WeightsInBF16AreTheirMasters) {
  TrainConfig config = config_of(DType::BF16);
  config.batch = 12;  // as many for each rank: their numbers of tokens are not sent
  const auto text = some_text();
  launch(launch_options({.ranks = 2}), [&](const Rank& rank) {
    Trainer trainer(rank, config, local(2, config.batch, false));
    const BatchSampler data(text, config.model.context, config.seed);
    const std::int64_t before = rank.world.stats()[CommOp::AllReduce].payload_bytes;
    for (int i = 0; i < 4; ++i) trainer.step(data);
    for (const Optimizer::State& state : trainer.optimizer().state()) {
      if (!state.name.ends_with("/master")) continue;
      Tensor rounded({state.value.count()}, DType::BF16, rank.device);
      ops::cast(rounded, state.value);
      EXPECT_TRUE(same_bits(rounded, state.parameter->value().flat(0, state.value.count())))
          << state.name << ": after an averaging the weight is not its master, rounded";
    }
    std::int64_t numbers = 0;
    for (const Parameter* p : trainer.parameters().parameters()) numbers += p->shape.count();
    EXPECT_EQ(rank.world.stats()[CommOp::AllReduce].payload_bytes - before,
              4 * 16 + 2 * 12 * numbers)
        << "4 steps' loss and norm, and two averages of masters, m and v";
    EXPECT_LT(divergence(rank.world, trainer.parameters().values()), kRounding);
  });
}

TEST(LocalSteps, SendNothingInBetween) {
  TrainConfig config = config_of(DType::F32);
  config.batch = 12;  // as many for each rank: their numbers of tokens are not sent
  const auto text = some_text();
  launch(launch_options({.ranks = 2}), [&](const Rank& rank) {
    Trainer trainer(rank, config, local(4, config.batch, false));
    const BatchSampler data(text, config.model.context, config.seed);
    const auto bytes = [&] { return rank.world.stats()[CommOp::AllReduce].payload_bytes; };
    for (int i = 0; i < 3; ++i) trainer.step(data);
    EXPECT_EQ(bytes(), 3 * 16) << "in a step without averaging: loss and norm";
    trainer.step(data);
    std::int64_t elements = trainer.parameters().layout().count();
    for (const Parameter* p : trainer.parameters().parameters()) elements += 2 * p->shape.count();
    EXPECT_EQ(bytes(), 4 * 16 + 4 * elements) << "then weights, m and v";
  });
}

TEST(LocalStepsGiven, NeedSamplesAndSteps) {
  const auto made = [](LocalOptions options) {
    return [=] {
      launch(launch_options({}), [&](const Rank& rank) {
        TrainConfig config = config_of(DType::F32);
        Trainer(rank, config,
                {.reducer = [=](const Rank& own, const Model&, ParameterStore& store) {
                  return std::make_unique<LocalSteps>(own, store, options);
                }});
      });
    };
  };
  EXPECT_TRUE(error_says(made({0, 4, 2}), {"every 0 steps"}));
  EXPECT_TRUE(error_says(made({1, 4, 0}), {"0 of 4 samples"}));
  EXPECT_TRUE(error_says(made({1, 4, 5}), {"5 of 4 samples"}));
}

}  // namespace
}  // namespace aisc
