// The norm of gradients of which each rank has a part.
#pragma once

#include <span>

#include "common/comm/communicator.h"
#include "common/core/tensor.h"
#include "common/train/step_end.h"

namespace aisc {

// The Euclidean norm of all ranks' `mine` together, the same on all of them: each element lies on
// one rank, and what pads shards is in none. NaN or infinite if one of them is. Collective.
// Bytes: 8.
double norm_of_shards(Communicator& ranks, std::span<const ConstView> mine);
// Likewise of the slices' gradients that count at this place (step_end.h).
double norm_of_shards(Communicator& ranks, std::span<const OptimizerSlice> mine,
                      const MeshPlace& place);

}  // namespace aisc
