#include "13_vision/engine_steps.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "common/core/error.h"

namespace aisc {

std::string engine_file(const EngineSettings& s) {
  const std::int64_t parts = s.ranks * s.micro_batches;
  if (parts < 1 || s.batch < parts || s.batch % parts != 0)
    fail(
        fmt::format("engine: a batch of {} over {} ranks with {} micro-batches each: expected a "
                    "multiple of {}",
                    s.batch, s.ranks, s.micro_batches, parts));
  if (s.warmup_steps < 1)
    fail(fmt::format("engine: a warm-up of {} steps, expected 1 or more", s.warmup_steps));
  nlohmann::ordered_json file{
      {"gradient_clipping", 0},
      {"optimizer",
       {{"type", "AdamW"},
        {"params",
         {{"lr", s.learning_rate}, {"betas", {0.9, s.beta2}}, {"weight_decay", s.weight_decay}}}}},
      {"scheduler",
       {{"type", "WarmupCosineLR"},
        {"params",
         {{"total_num_steps", s.steps},
          {"warmup_num_steps", s.warmup_steps},
          {"warmup_type", "linear"},
          {"cos_min_ratio", 0}}}}}};
  // LAB 13.3: the engine and its file
  // > file["key"] = value. Three keys say how a step's batch is divided, and have to agree:
  // > "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps". Of ZeRO
  // > file["zero_optimization"] is {{"stage", s.zero}}.
  file["train_batch_size"] = s.batch;
  file["train_micro_batch_size_per_gpu"] = s.batch / parts;
  file["gradient_accumulation_steps"] = s.micro_batches;
  file["zero_optimization"] = {{"stage", s.zero}};
  // END LAB 13.3
  return file.dump(2) + "\n";
}

double engine_step(Engine& engine, std::int64_t micro_batches, const ReadImages& read) {
  if (micro_batches != engine.micro_batches())
    fail(fmt::format("engine: a step of {} micro-batches, expected {}, as it was configured",
                     micro_batches, engine.micro_batches()));
  if (engine.micro_batch() != 0)
    fail(fmt::format("engine: a step is under way: {} of {} micro-batches were taken, expected 0",
                     engine.micro_batch(), engine.micro_batches()));
  double loss = 0;
  // LAB 13.3: the engine and its file
  // > engine.forward takes a Batch: {.tokens = images.share(), .targets = labels.share(), .terms =
  // > how many losses there are}. Three calls a micro-batch; which of them would you leave out
  // > behind all but the last, and why does the engine not want you to?
  for (std::int64_t m = 0; m < micro_batches; ++m) {
    const ImageBatch batch = read(m);
    loss += engine.forward({.tokens = batch.images.share(),
                            .targets = batch.labels.share(),
                            .terms = static_cast<double>(batch.labels.count())});
    engine.backward();
    engine.step();
  }
  // END LAB 13.3
  return loss / static_cast<double>(micro_batches);
}

}  // namespace aisc
