// Whole training runs: what precision, micro-batches and threads may change, and what they may not.
#include "common/train/trainer.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/nn/gpt_fixture.h"
#include "tests/support/devices.h"
#include "tests/support/error_says.h"
#include "tests/support/ledger_checks.h"
#include "tests/support/same_run.h"
#include "tests/support/trace_checks.h"
#include "tests/train/small_run.h"

namespace aisc {
namespace {

class Trainers : public PerDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, Trainers, ::testing::ValuesIn(device_kinds()),
                         device_kind_test_name);

TEST(Trainer, LearnsARepetitiveText) {
  TrainConfig config = small_config(DType::F32);
  config.steps = 200;
  config.learning_rate = 1e-2;
  const RunRecord record = run(config, 200);
  EXPECT_NEAR(record.losses.front(), std::log(256.0), 0.1);
  // Letters' frequencies alone give 2.4. Knowing the words leaves log 5 per word, 0.31 per letter.
  EXPECT_LT(record.losses.back(), 0.8);
}

TEST_P(Trainers, TheSameSeedAndThreadsGiveTheSameBits) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    TrainConfig config = small_config(dtype);
    config.model.dropout = 0.1;
    const RunRecord a = run(config, 8, GetParam()), b = run(config, 8, GetParam());
    EXPECT_EQ(a.losses, b.losses) << name_of(dtype);
    EXPECT_EQ(a.weights, b.weights) << name_of(dtype);
    config.seed = 2;
    EXPECT_NE(a.losses, run(config, 8, GetParam()).losses);
  }
}

TEST_P(Trainers, MicroBatchesChangeNothingInF64) {
  TrainConfig config = small_config(DType::F64);
  config.model.dropout = 0.2;
  const RunRecord serial = run(config, 6, GetParam());
  for (const std::int64_t parts : {2, 4}) {
    config.micro_batches = parts;
    EXPECT_TRUE(same_run(serial, run(config, 6, GetParam()), kSameRunF64))
        << parts << " micro-batches";
  }
}

TEST(Trainer, ThreadsChangeNothingBeyondRoundingInF64) {
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const RunRecord serial = run(small_config(DType::F64), 6);
  omp_set_num_threads(3);
  EXPECT_TRUE(same_run(serial, run(small_config(DType::F64), 6), kSameRunF64));
  omp_set_num_threads(threads);
}

// Rounding moves a run away from the F64 one step by step. Over 50 steps of this model F32 stays
// within a hundred-thousandth of a nat; BF16, with F32 master weights, within a few hundredths: its
// activations carry 8 bits, an error of 2^-9 each, averaged over 80 tokens.
constexpr double kF32Distance = 1e-4;
constexpr double kBF16Distance = 0.05;

TEST(Trainer, ShorterTypesStayNearTheF64RunOver50Steps) {
  const std::vector<double> exact = run(small_config(DType::F64), 50).losses;
  const auto distance = [&](const TrainConfig& config) {
    const std::vector<double> losses = run(config, 50).losses;
    double worst = 0;
    for (std::size_t i = 0; i < exact.size(); ++i)
      worst = std::max(worst, std::abs(losses[i] - exact[i]));
    return worst;
  };
  EXPECT_LT(distance(small_config(DType::F32)), kF32Distance);
  TrainConfig bf16 = small_config(DType::BF16);
  EXPECT_LT(distance(bf16), kBF16Distance);
  bf16.gradient_dtype = DType::F32;
  EXPECT_LT(distance(bf16), kBF16Distance);
}

TEST_P(Trainers, HoldsSixteenBytesPerParameterInMixedPrecision) {
  TestWorld world(GetParam());
  Trainer trainer(world.rank, small_config(DType::BF16));
  const std::int64_t padded = trainer.parameters().layout().count();
  const std::int64_t exact = trainer.parameters().parameter_count();
  EXPECT_TRUE(live_bytes_are(world.device, Purpose::Parameters, 2 * padded));
  EXPECT_TRUE(live_bytes_are(world.device, Purpose::Gradients, 2 * padded));
  EXPECT_TRUE(live_bytes_are(world.device, Purpose::Optimizer, 12 * exact));
}

TEST_P(Trainers, NeverAsksTheSystemForMemoryAfterTheThirdStep) {
  for (const DType dtype : {DType::F32, DType::BF16}) {
    TestWorld world(GetParam());
    TrainConfig config = small_config(dtype);
    config.micro_batches = 2;
    config.model.dropout = 0.1;
    Trainer trainer(world.rank, config);
    const std::vector<std::uint8_t> text = words(500);
    const BatchSampler data(text, config.model.context, 1);
    for (int i = 0; i < 3; ++i) trainer.step(data);
    const Ledger before = world.device.ledger();
    for (int i = 0; i < 5; ++i) trainer.step(data);
    EXPECT_TRUE(no_cache_misses_since(world.device, before));
    EXPECT_EQ(world.device.ledger().leaked_since(before), "");
  }
}

TEST_P(Trainers, StopsWithTheStepAndAHintWhenTheLossIsNotFinite) {
  TestWorld world(GetParam());
  TrainConfig config = small_config(DType::F32);
  config.warmup_steps = 0;
  config.learning_rate = 1e30;
  config.min_learning_rate = 0;
  Trainer trainer(world.rank, config);
  const std::vector<std::uint8_t> text = words(500);
  const BatchSampler data(text, config.model.context, 1);
  trainer.step(data);
  EXPECT_TRUE(error_says(
      [&] {
        for (int i = 0; i < 3; ++i) trainer.step(data);
      },
      {"step ", "the loss is", "learning rate that is too high"}));
}

TEST_P(Trainers, TracesForwardBeforeBackwardAndBothBeforeTheOptimizer) {
  TestWorld world(GetParam());
  Trainer trainer(world.rank, small_config(DType::F32));
  const std::vector<std::uint8_t> text = words(500);
  const BatchSampler data(text, 20, 1);
  world.trace.record(true);
  trainer.step(data);
  EXPECT_TRUE(in_order(
      world.trace.events(),
      {"data", "wte.weight", "blocks.0.attention", "blocks.1.attention", "head", "loss", "head",
       "blocks.1.attention", "blocks.0.attention", "wte.weight", "clip", "optimizer"}));
}

TEST(Trainer, NamesWhatDoesNotFit) {
  const auto message = [](auto change, const std::vector<std::string>& fragments) {
    TrainConfig config = small_config(DType::F32);
    change(config);
    EXPECT_TRUE(error_says([&] { config.validate(); }, fragments));
  };
  message([](TrainConfig& c) { c.micro_batches = 3; }, {"batch 4", "micro-batches 3"});
  message([](TrainConfig& c) { c.batch = 0; }, {"batch is 0", "1 or more"});
  message([](TrainConfig& c) { c.learning_rate = -1; }, {"learning rate is -1"});
  message([](TrainConfig& c) { c.min_learning_rate = 1; }, {"minimum learning rate is 1"});
  message([](TrainConfig& c) { c.gradient_dtype = DType::BF16; },
          {"gradients in BF16 beside weights in F32: expected F32"});
  message([](TrainConfig& c) { c.clip = -1; }, {"clip is -1"});
  for (const double bad : {-0.1, 1.0, std::nan("")}) {
    message([&](TrainConfig& c) { c.beta1 = bad; }, {"beta1 is", "expected 0 <= beta < 1"});
    message([&](TrainConfig& c) { c.beta2 = bad; }, {"beta2", "expected 0 <= beta < 1"});
  }
  for (const double bad : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    message([&](TrainConfig& c) { c.weight_decay = bad; }, {"weight decay is", "0 or more"});
    message([&](TrainConfig& c) { c.clip = bad; }, {"clip is", "0 or more"});
  }
  message([](TrainConfig& c) { c.model.dropout = 1; }, {"dropout is 1"});
  message([](TrainConfig& c) { c.ep = 2; }, {"ep is 2", "no experts"});
  message([](TrainConfig& c) { c.ep = 0; }, {"ep is 0", "1 or more"});
  const TrainConfig config = small_config(DType::F32);
  EXPECT_TRUE(error_says([&] { config.validate(0); }, {"ranks is 0", "1 or more"}));
}

TEST(Trainer, NamesExpertsThatRanksCannotShare) {
  TrainConfig config = small_config(DType::F32);
  config.ep = 2;
  config.model.experts.count = 6;
  EXPECT_TRUE(error_says([&] { config.validate(3); }, {"3 data-parallel ranks", "ep 2"}));
  config.tp = 2;
  EXPECT_TRUE(error_says([&] { config.validate(4); }, {"experts are 6", "ep 2 * tp 2"}));
  config.model.experts.count = 8;
  config.validate(4);
  EXPECT_TRUE(config.has_mesh());
  EXPECT_EQ(config.mesh(4).ep, 2);
}

TEST(Trainer, NeedsTheLayersOfExperts) {
  TestWorld world;
  TrainConfig config = small_config(DType::F32);
  config.model.experts.count = 2;
  EXPECT_TRUE(error_says([&] { Trainer(world.rank, config); },
                         {"experts are 2", "no parts of a model with experts are given"}));
}

}  // namespace
}  // namespace aisc
