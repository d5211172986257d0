// A small training run on any device, and what it leaves behind.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/train/trainer.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/same_run.h"
#include "tests/support/tensors.h"

namespace aisc {

// A text with something to learn: a few words in a drawn order.
inline std::vector<std::uint8_t> words(std::size_t count) {
  const std::string vocabulary[] = {"ring ", "tree ", "rank ", "mesh ", "chunk "};
  const Philox random(1, "words");
  std::string text;
  for (std::uint64_t i = 0; i < count; ++i) text += vocabulary[random.below(i, 5)];
  return {text.begin(), text.end()};
}

inline TrainConfig small_config(DType dtype) {
  TrainConfig c;
  c.model = {
      .layers = 2, .heads = 2, .width = 24, .context = 20, .vocabulary = 256, .dtype = dtype};
  c.gradient_dtype = dtype;
  c.batch = 4;
  c.steps = 50;
  c.warmup_steps = 5;
  c.learning_rate = 3e-3;
  return c;
}

inline RunRecord run(const TrainConfig& config, std::int64_t steps,
                     DeviceKind kind = DeviceKind::Cpu) {
  TestWorld world(kind);
  Trainer trainer(world.rank, config);
  const std::vector<std::uint8_t> text = words(500);
  const BatchSampler data(text, config.model.context, config.seed);
  RunRecord record;
  for (std::int64_t i = 0; i < steps; ++i) record.losses.push_back(trainer.step(data).loss);
  for (const Parameter* p : trainer.parameters().parameters()) {
    record.gradients[p->name] = to_doubles(p->grad());
    record.weights[p->name] = to_doubles(p->value());
  }
  return record;
}

}  // namespace aisc
