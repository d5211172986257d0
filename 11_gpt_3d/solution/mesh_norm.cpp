#include "11_gpt_3d/mesh_norm.h"

#include "common/ops/ops.h"

namespace aisc {

double own_square(std::span<const OptimizerSlice> slices, bool sharded, const MeshPlace& place) {
  // LAB 11.3: norm over a mesh
  // > ops::sum_of_squares(x) is a double, counts(parameter, sharded, place) a question. What will
  // > be added up over the ranks, the norm of each rank's part or something else?
  double square = 0;
  for (const OptimizerSlice& slice : slices)
    if (counts(*slice.parameter, sharded, place)) square += ops::sum_of_squares(slice.gradient);
  return square;
  // END LAB 11.3
}

}  // namespace aisc
