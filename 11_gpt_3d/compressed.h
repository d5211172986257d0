// What flags ask of module 10: fewer bits, fewer weights, a teacher.
#pragma once

#include "app/options.h"
#include "common/train/step_parts.h"

namespace aisc {

// These parts of a step with what --precision f16 and f8, --loss-scale, --quantize-aware,
// --sparsity and --distill ask for, around them. Throws Error for values of these flags, and for a
// teacher that is not there.
StepParts compressed(const Options& options, StepParts parts);

}  // namespace aisc
