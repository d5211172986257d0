// Ranks that go their own way, and meet.
#include "03_data_parallel/local_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/error_says.h"
#include "tests/support/serial_run.h"
#include "tests/support/toy_model.h"

namespace aisc {
namespace {

TrainConfig config_of(DType dtype) {
  TrainConfig c = odd_training(1, "none", dtype);
  c.batch = 13;
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

constexpr double kRounding = 1e-12;

// What a rank sees after each step: its loss and weights, and how far all ranks' weights and
// optimizers are apart.
struct Steps {
  std::vector<double> losses, apart;
  std::vector<std::vector<double>> weights;
};
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
      own.weights.push_back(to_doubles(values));
      double apart = divergence(rank.world, values);
      for (const Optimizer::State& state : trainer.optimizer().state())
        apart = std::max(apart, divergence(rank.world, state.value));
      own.apart.push_back(apart);
    }
  });
  return all;
}

TEST(LocalSteps, OfPlainSgdAveragedEveryStepAreTheSerialRun) {
  const TrainConfig config = config_of(DType::F64);
  const StepParts parts = local(1, config.batch, true);
  const Steps serial = steps_of(1, config, parts, 4)[0];
  for (const int ranks : {2, 3, 4})  // 13 samples: shares differ
    for (const Steps& rank : steps_of(ranks, config, parts, 4))
      for (std::size_t i = 0; i < 4; ++i) {
        EXPECT_NEAR(rank.losses[i], serial.losses[i], kSameRunF64);
        EXPECT_THAT(rank.weights[i],
                    ::testing::Pointwise(::testing::DoubleNear(kSameRunF64), serial.weights[i]))
            << ranks << " ranks, step " << i + 1;
      }
}

TEST(LocalSteps, DivergeBetweenAveragingsAndAgreeAfterThem) {
  const TrainConfig config = config_of(DType::F64);
  const std::vector<double> apart = steps_of(3, config, local(3, config.batch, false), 7)[0].apart;
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
    const std::int64_t numbers = trainer.parameters().parameter_count();
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
    const std::int64_t elements =
        trainer.parameters().layout().count() + 2 * trainer.parameters().parameter_count();
    EXPECT_EQ(bytes(), 4 * 16 + 4 * elements) << "then weights, m and v";
  });
}

TEST(LocalStepsGiven, NeedSamplesAndSteps) {
  const auto made = [](LocalOptions options) {
    return [=] {
      launch({.bind = false}, [&](const Rank& rank) {
        const toy::Toy toy(rank, {{.count = 1}});
        LocalSteps(rank, *toy.store, options);
      });
    };
  };
  EXPECT_TRUE(error_says(made({0, 4, 2}), {"every 0 steps"}));
  EXPECT_TRUE(error_says(made({1, 4, 0}), {"0 of 4 samples"}));
  EXPECT_TRUE(error_says(made({1, 4, 5}), {"5 of 4 samples"}));
}

}  // namespace
}  // namespace aisc
