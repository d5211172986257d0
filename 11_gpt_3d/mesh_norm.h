// The norm of a gradient of which each rank of a mesh has a part: what one rank adds to it.
#pragma once

#include <span>

#include "common/train/step_end.h"

namespace aisc {

// The sum of squares of those of a rank's gradients that it counts (step_end.h). Of the slices'
// parameters some are split over tensor ranks, some are on two stages; where data-parallel ranks
// have shards (`sharded`), these are of all of them. The root of all ranks' sums together is the
// norm of the whole model's gradient. A rank may hold nothing: 0.
//
// By hand: tensor rank 0 has 3 of a matrix that is split, rank 1 has 4, and both have 12 of a bias.
// Rank 0 counts 9 + 144, rank 1 counts 16, and the norm is sqrt(169) = 13; with the bias counted on
// both it would be 17.7.
double own_square(std::span<const OptimizerSlice> slices, bool sharded, const MeshPlace& place);

}  // namespace aisc
