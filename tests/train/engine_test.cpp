// A loop of one's own over an engine is the loop inside a Trainer.
#include "common/train/engine.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "tests/support/error_says.h"
#include "tests/train/small_run.h"

namespace aisc {
namespace {

RunRecord run_engine(const TrainConfig& config, std::int64_t steps) {
  TestWorld world(DeviceKind::Cpu);
  Engine engine(world.rank, make_gpt(world.rank, config.model), config);
  const std::vector<std::uint8_t> text = words(500);
  const BatchSampler data(text, config.model.context, config.seed);
  RunRecord record;
  const std::int64_t part = config.batch / config.micro_batches;
  for (std::int64_t i = 0; i < steps; ++i) {
    double loss = 0;
    for (std::int64_t m = 0; m < config.micro_batches; ++m) {
      EXPECT_EQ(engine.is_boundary(), m + 1 == config.micro_batches);
      loss += engine.forward(data.batch(world.rank.device, i * config.batch + m * part, part));
      engine.backward();
      EXPECT_EQ(engine.step(), m + 1 == config.micro_batches);
    }
    record.losses.push_back(loss / static_cast<double>(config.micro_batches));
  }
  EXPECT_EQ(engine.steps(), steps);
  for (const Parameter* p : engine.parameters().parameters()) {
    record.gradients[p->name] = to_doubles(p->grad());
    record.weights[p->name] = to_doubles(p->value());
  }
  return record;
}

TEST(Engine, TakesTheStepsOfATrainer) {
  for (const std::int64_t parts : {1, 2, 4}) {
    TrainConfig config = small_config(DType::F64);
    config.model.dropout = .2;
    config.micro_batches = parts;
    EXPECT_TRUE(same_run(run(config, 6), run_engine(config, 6), kSameRunF64)) << parts;
  }
}

TEST(Engine, PredictsAndEvaluatesWithoutMovingAnything) {
  TestWorld world(DeviceKind::Cpu);
  const TrainConfig config = small_config(DType::F64);
  Engine engine(world.rank, make_gpt(world.rank, config.model), config);
  const std::vector<std::uint8_t> text = words(500);
  const Batch batch = BatchSampler(text, config.model.context, 1).batch(world.rank.device, 0, 4);
  const double before = engine.evaluate(batch);
  const Shape logits{4, config.model.context, 256};
  EXPECT_EQ(engine.predict(batch.tokens).shape(), logits);
  EXPECT_EQ(engine.forward(batch), before);
  engine.backward();
  EXPECT_TRUE(engine.step());
  EXPECT_LT(engine.evaluate(batch), before);
  EXPECT_GT(engine.gradient_norm(), 0);
}

TEST(Engine, SaysWhatIsCalledOutOfOrder) {
  TestWorld world(DeviceKind::Cpu);
  TrainConfig config = small_config(DType::F64);
  config.micro_batches = 2;
  Engine engine(world.rank, make_gpt(world.rank, config.model), config);
  const std::vector<std::uint8_t> text = words(500);
  const Batch batch = BatchSampler(text, config.model.context, 1).batch(world.rank.device, 0, 2);
  EXPECT_TRUE(error_says([&] { engine.backward(); },
                         {"found backward, expected forward of micro-batch 1 of step 1"}));
  engine.forward(batch);
  EXPECT_TRUE(error_says([&] { engine.forward(batch); }, {"found forward, expected backward"}));
  engine.backward();
  engine.step();
  EXPECT_TRUE(error_says([&] { engine.step(); },
                         {"found step, expected forward of micro-batch 2 of step 1"}));
}

TEST(Engine, GoesOnBehindABatchThatWasRefused) {
  TestWorld world(DeviceKind::Cpu);
  const TrainConfig config = small_config(DType::F64);
  Engine engine(world.rank, make_gpt(world.rank, config.model), config);
  const std::vector<std::uint8_t> text = words(500);
  const BatchSampler data(text, config.model.context, 1);
  Batch wrong = data.batch(world.rank.device, 0, 4);
  wrong.targets = data.batch(world.rank.device, 0, 3).targets;
  EXPECT_TRUE(error_says([&] { engine.forward(wrong); }, {""}));
  engine.forward(data.batch(world.rank.device, 0, 4));
  engine.backward();
  EXPECT_TRUE(engine.step());
}

TEST(Engine, RefusesWhatItIsNotMadeFor) {
  TestWorld world(DeviceKind::Cpu);
  const auto make = [&](const TrainConfig& config, StepParts parts = {}) {
    Engine(world.rank, make_gpt(world.rank, config.model), config, std::move(parts));
  };
  TrainConfig config = small_config(DType::F64);
  config.micro_batches = 3;
  EXPECT_TRUE(error_says([&] { make(config); }, {"a batch of 4 over 1 ranks with 3 micro-batches",
                                                 "expected a multiple of 3"}));
  config.micro_batches = 1;
  StepParts parts;
  parts.split = [](GptParts p, Communicator&) { return p; };
  EXPECT_TRUE(error_says([&] { make(config, parts); }, {"parts of a step that make or divide"}));
  EXPECT_TRUE(error_says([&] { Engine(world.rank, Model(), config); }, {"expected a whole model"}));
}

}  // namespace
}  // namespace aisc
