// The end of a step on a mesh: what comes after what behind the last micro-batch.
#pragma once

#include "common/train/step_end.h"

namespace aisc {

// Sums, norm, clipping to `clip` by clip_factor() (0: none), update; returns the norm before
// clipping. By hand: own squares of 9 and 16 on two ranks are a norm of 5 on both; with clip 1 both
// update with gradients times 1/5. Throws Error on every rank, with all weights as they were, where
// the norm is not finite.
double finish_step(StepEnd& step, double clip);

}  // namespace aisc
