// The parts of a training step that flags ask for, from the modules that have them.
#pragma once

#include "app/options.h"
#include "common/train/step_parts.h"

namespace aisc {

StepParts step_of(const Options& options);

// Of how many micro-batches a rank of these has activations at once. Throws Error for a schedule
// that cannot be.
TrainConfig::AtOnce micro_batches_at_once(const Options& options);

}  // namespace aisc
