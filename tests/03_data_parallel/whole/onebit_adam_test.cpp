// Adam with its gradients in a bit each: exact until the variance has settled, near it afterwards.
#include "03_data_parallel/onebit_adam.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "03_data_parallel/average.h"
#include "common/train/trainer.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/error_says.h"
#include "tests/support/run_layout.h"

namespace aisc {
namespace {

TrainConfig config_of(DType dtype = DType::F32) {
  TrainConfig c;
  c.model = odd_config(dtype);
  c.gradient_dtype = DType::F32;
  c.batch = 8;
  c.steps = 200;
  c.learning_rate = 3e-3;
  c.warmup_steps = 5;
  c.clip = 0;
  return c;
}

// What rank 0 sees; `compressing`: how many of the steps did.
struct Seen {
  std::vector<double> losses;
  std::vector<double> weights;
  std::vector<std::int64_t> all_reduced;  // payload bytes of all_reduce, step by step
  int compressing = 0;
};
Seen run_onebit(int ranks, const TrainConfig& config, const StepParts& parts, int steps) {
  Seen seen;
  const auto text = some_text();
  launch(launch_options({.ranks = ranks}), [&](const Rank& rank) {
    Trainer trainer(rank, config, parts);
    const BatchSampler data(text, config.model.context, config.seed);
    for (int i = 0; i < steps; ++i) {
      const auto before = rank.world.stats()[CommOp::AllReduce].payload_bytes;
      const double loss = trainer.step(data).loss;
      const auto* adam = dynamic_cast<const OneBitAdam*>(&trainer.optimizer());
      if (rank.world.rank() > 0) continue;
      seen.losses.push_back(loss);
      seen.all_reduced.push_back(rank.world.stats()[CommOp::AllReduce].payload_bytes - before);
      seen.compressing += adam && adam->is_compressing() ? 1 : 0;
    }
    if (rank.world.rank() == 0) seen.weights = to_doubles(trainer.parameters().values());
    // Ranks stay the same to the last bit, although each has errors of its own.
    require_equal_weights(rank.world, trainer.parameters().values());
  });
  return seen;
}

TEST(OneBitAdam, IsAdamToTheLastBitWhileWarmingUp) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    const TrainConfig config = config_of(dtype);
    const Seen adam = run_onebit(2, config, {}, 6),
               other = run_onebit(2, config, onebit_adam(100), 6);
    EXPECT_EQ(adam.losses, other.losses);
    EXPECT_EQ(adam.weights, other.weights);
    EXPECT_EQ(other.compressing, 0);
  }
}

// 8 bytes of loss and 8 of the norm are all that is all-reduced from then on.
TEST(OneBitAdam, SumsNoGradientsAfterwards) {
  const TrainConfig config = config_of();
  const Seen seen = run_onebit(2, config, onebit_adam(3), 5);
  EXPECT_GT(seen.all_reduced[2], 1000);
  EXPECT_EQ(seen.all_reduced[3], 16);
  EXPECT_EQ(seen.all_reduced[4], 16);
  EXPECT_EQ(seen.compressing, 3) << "the steps after which signs are next";
}

// The first compressed step of one rank, by the formulas, number by number; also where the weight
// is a copy of its master.
TEST(OneBitAdam, StepsAsItsFormulaSays) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    TestWorld world;
    Device& device = world.device;
    const Tensor weight = from_doubles({1, 2, 3}, {3}, dtype, device);
    const Tensor gradient = Tensor::zeros({3}, DType::F32, device);
    OneBitAdam adam(
        world.rank, {{"w", weight, gradient, true, nullptr, 0}},
        {.adam = {.beta1 = .9, .beta2 = .99, .epsilon = 1e-8, .weight_decay = .1}, .warmup = 1});
    const std::vector<double> g1 = {.5, -.25, 1}, g2 = {1, .5, -100};
    write_doubles(gradient, g1);
    adam.step({.learning_rate = .01});
    // AdamW's first step goes by 1 in the direction of the gradient.
    std::vector<double> w1 = {1, 2, 3};
    for (std::size_t i = 0; i < 3; ++i) w1[i] -= .01 * (g1[i] / std::abs(g1[i]) + .1 * w1[i]);
    write_doubles(gradient, g2);
    adam.step({.learning_rate = .01});
    // sqrt(v') is |g1|; the last gradient is a hundred times that and counts ten times.
    const std::vector<double> u = {.9 * .1 + .1 * 1 / .5, .9 * -.1 + .1 * .5 / .25,
                                   .9 * .1 + .1 * -10};
    const double scale = (std::abs(u[0]) + std::abs(u[1]) + std::abs(u[2])) / 3;
    const std::vector<double> found = to_doubles(weight);
    for (std::size_t i = 0; i < 3; ++i) {
      const double sent = u[i] >= 0 ? scale : -scale;
      const double expected = w1[i] - .01 * (sent / (1 - .81) + .1 * w1[i]);
      EXPECT_NEAR(found[i], expected, dtype == DType::F32 ? 1e-6 : .008) << "weight " << i;
      for (const Optimizer::State& state : adam.state())
        if (state.name == "w/master") {
          EXPECT_NEAR(to_doubles(state.value)[i], expected, 1e-6) << "master " << i;
        }
    }
  }
}

// Signs give all numbers of a block one size, also a key's bias, whose gradient is rounding noise:
// no weight may run away for it.
TEST(OneBitAdam, LetsNoWeightRunAway) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    TrainConfig config = config_of(dtype);
    const auto largest = [](const Seen& seen) {
      double most = 0;
      for (const double w : seen.weights) most = std::max(most, std::abs(w));
      return most;
    };
    const double adam = largest(run_onebit(2, config, {}, 120)),
                 other = largest(run_onebit(2, config, onebit_adam(30), 120));
    EXPECT_LT(other, 2 * adam) << "the largest weight; of AdamW " << adam;
  }
}

TEST(OneBitAdam, CompressesWhenTheVarianceHasSettled) {
  TrainConfig config = config_of();
  config.beta2 = 0.8;  // settles within tens of steps
  const Seen seen = run_onebit(2, config, onebit_adam(0), 120);
  EXPECT_GT(seen.compressing, 20);
  EXPECT_LT(seen.compressing, 120 - 5)
      << "not before the learning rate's warm-up and 1 / (1 - b2) steps";
}

// With the same gradient in every step v is (1 - b2^t) g^2.
TEST(OneBitAdam, SettlesInTheStepThatTheFormulaSays) {
  const double beta2 = .8;  // a mean over 5 steps
  const auto settles_at = [&](std::int64_t least_warmup) {
    TestWorld world;
    const Tensor weight = from_doubles({1, 2}, {2}, DType::F32, world.device);
    const Tensor gradient = from_doubles({.5, -3}, {2}, DType::F32, world.device);
    OneBitAdam adam(world.rank, {{"w", weight, gradient, true, nullptr, 0}},
                    {.adam = {.beta2 = beta2}, .least_warmup = least_warmup});
    while (!adam.is_compressing() && adam.steps() < 99) adam.step({.learning_rate = 1e-3});
    return adam.steps();
  };
  std::int64_t expected = 6;
  while ((1 - std::pow(beta2, expected - 5)) / (1 - std::pow(beta2, expected)) < .96) ++expected;
  EXPECT_EQ(expected, 18) << "by hand";
  EXPECT_EQ(settles_at(0), expected);
  EXPECT_EQ(settles_at(30), 30) << "not before the learning rate has warmed up";
}

// Of 2.56 nats at the start some .4 are left after 200 steps; the distance that is allowed between
// the two.
constexpr double kDistance = 0.15;

TEST(OneBitAdam, EndsNearAdam) {
  const TrainConfig config = config_of();
  const auto end = [&](const Seen& seen) {
    double sum = 0;
    for (std::size_t i = seen.losses.size() - 20; i < seen.losses.size(); ++i)
      sum += seen.losses[i] / 20;
    return sum;
  };
  const double adam = end(run_onebit(4, config, {}, 200)),
               other = end(run_onebit(4, config, onebit_adam(40), 200));
  RecordProperty("adam", std::to_string(adam));
  RecordProperty("onebit", std::to_string(other));
  EXPECT_NEAR(other, adam, kDistance) << "1-bit Adam ends at " << other << ", Adam at " << adam;
}

TEST(OneBitAdam, SaysWhatItCannotDo) {
  TestWorld world;
  Device& device = world.device;
  const auto made = [&](DType dtype) {
    const Tensor w = random_tensor({4}, dtype, device, "w");
    return OneBitAdam(world.rank, {{"w", w, w, true, nullptr, 0}}, {.warmup = 1});
  };
  EXPECT_TRUE(error_says([&] { made(DType::F64); }, {"w is F64", "F32 or BF16"}));
  OneBitAdam adam = made(DType::F32);
  adam.step({.learning_rate = 1e-3, .gradient_scale = .5});
  EXPECT_TRUE(error_says([&] { adam.step({.learning_rate = 1e-3, .gradient_scale = .5}); },
                         {"cannot be clipped", "expected clip 0"}));
  EXPECT_TRUE(error_says([&] { OneBitAdam(world.rank, {}, {}); }, {"no weights"}));
}

}  // namespace
}  // namespace aisc
