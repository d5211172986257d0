// What a step keeps, recomputes and offloads so that it fits into a device and is quickest.
#pragma once

#include <functional>
#include <vector>

#include "02_cpu_offload/saving_plan.h"
#include "common/comm/network.h"
#include "common/train/step_parts.h"
#include "common/train/train_config.h"

namespace aisc {

// A step of rank 0 in virtual time, on a device without limit: how long it took, and what was there
// at most of all that it holds.
struct StepMeasure {
  double seconds = 0;
  std::int64_t peak_bytes = 0;
};
using MeasureStep = std::function<StepMeasure(const TrainConfig& config, const StepParts& parts)>;

struct FittedSavings {
  std::vector<Saving> layers;    // of the model
  std::vector<bool> recomputed;  // by block: TrainConfig::recompute.chosen
  std::vector<bool> offloaded;   // by layer: SavedToHostOptions::layers
  StepMeasure step;              // with them
};

// Runs a step with all kept and one with all blocks recomputed, takes from these what each layer
// costs, and searches (saving_plan.h). What it finds is run, and where more is there than the
// search knows of, gradients of activations and workspace say, it looks for so much less. `copies`
// is the link, of a machine to its host. Not for a pipeline. Throws Error, with what is needed at
// least, where nothing fits into `capacity_bytes`.
FittedSavings fit_savings(const TrainConfig& config, const StepParts& parts, const Link& copies,
                          std::int64_t capacity_bytes, const MeasureStep& measure);

}  // namespace aisc
