// A transformer whose layers are split over tensor ranks, and what lies between the layers over
// them by tokens (Korthikanti et al., arXiv 2205.05198, section 4.2.2).
#pragma once

#include "common/train/step_parts.h"

namespace aisc {

// `parts` as tensor_parallel_parts() has them, with g and g-bar in the place of f and g: norms,
// dropout, residual connections and positions have 1/t of the tokens on each rank. A rank sends
// what f and g send, and in backward the inputs of column-parallel layers once more: 10 halves of
// an all-reduce a block in the place of 8. What it keeps of a block is 1/t of all. The names of the
// parameters and their values stay. The core of attention is that of `parts`, of H/t heads. tp must
// outlive the layers.
GptParts sequence_parallel_parts(Communicator& tp, GptParts parts);

// For a Trainer with config.tp ranks that share each layer.
StepParts sequence_parallel(StepParts parts = {});

}  // namespace aisc
