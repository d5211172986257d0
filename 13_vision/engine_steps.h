// A loop over an engine (common/train/engine.h), and the file that says what the loop says no more.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "13_vision/image_set.h"
#include "common/train/engine.h"

namespace aisc {

// What a run learns by, in the field's words; batch is of a step, of all ranks and micro-batches.
struct EngineSettings {
  std::int64_t batch = 64, micro_batches = 1;
  int ranks = 1;
  int zero = 0;                                // the stage of ZeRO, 0 to 3
  std::int64_t steps = 300, warmup_steps = 1;  // 1 or more, as DeepSpeed wants
  double learning_rate = 4e-3, beta2 = 0.99, weight_decay = 0.01;
};

// DeepSpeed's configuration of them (docs/deepspeed.md), as text of JSON: AdamW with the rate that
// warms up to learning_rate and falls to 0 by a cosine, no clipping. Throws Error where ranks and
// micro-batches do not divide the batch, and for a warm-up without a step.
std::string engine_file(const EngineSettings& settings);

// Reads the images of this rank's micro-batch m of a step.
using ReadImages = std::function<ImageBatch(std::int64_t m)>;

// One step of the engine: all its micro-batches, read in their order, of which the last moves the
// weights. Returns the mean of their losses, on this rank. Throws Error, before anything is read,
// where the engine is in the middle of a step, or its steps have another number. Collective.
double engine_step(Engine& engine, std::int64_t micro_batches, const ReadImages& read);

}  // namespace aisc
