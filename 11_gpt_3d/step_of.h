// The parts of a training step that flags ask for, from the modules that have them.
#pragma once

#include "app/options.h"
#include "common/train/step_parts.h"

namespace aisc {

StepParts step_of(const Options& options);

}  // namespace aisc
