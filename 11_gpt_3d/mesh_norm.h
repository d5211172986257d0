// The norm of a gradient of which each rank of a mesh has a part.
#pragma once

#include <span>

#include "common/comm/mesh.h"
#include "common/core/tensor.h"

namespace aisc {

// Some of a rank's gradients, summed over all ranks that had a share in them.
struct HeldGradient {
  ConstView gradient;    // F32 or F64
  bool split_over_tp;    // tensor ranks have different parts; else they all have the same
  bool tied = false;     // the first and the last stage have the same
  bool sharded = false;  // data-parallel ranks have different parts; else they all have the same
};

// True on exactly one of the ranks that have the same elements: the one whose index is the lowest
// in each direction. cp is 1.
bool counts(const HeldGradient& held, const MeshPlace& place);

// The norm of the whole model's gradient, each element of it counted once: the same on all ranks of
// `world`, whose mesh this is. One all-reduce of one F64. Collective; a rank may hold nothing.
//
// By hand: tensor rank 0 has 3 of a matrix that is split, rank 1 has 4, and both have 12 of a bias.
// The norm is sqrt(9 + 16 + 144) = 13; with the bias counted on both it would be 17.7.
double mesh_norm(std::span<const HeldGradient> held, const MeshPlace& place, Communicator& world);

}  // namespace aisc
