#include "11_gpt_3d/mesh_norm.h"

#include <cmath>

#include "common/core/device.h"
#include "common/ops/ops.h"

namespace aisc {

bool counts(const HeldGradient& held, const MeshPlace& place) {
  // LAB 11.3: norm over a mesh
  // > In which directions do other ranks have the same elements? In each of these, one index counts
  // > them.
  const bool first_of_tp = held.split_over_tp || place.tp == 0;
  const bool first_of_dp = held.sharded || place.dp == 0;
  const bool first_of_pp = !held.tied || place.pp == 0;
  return first_of_tp && first_of_dp && first_of_pp;
  // END LAB 11.3
}

double mesh_norm(std::span<const HeldGradient> held, const MeshPlace& place, Communicator& world) {
  // LAB 11.3: norm over a mesh
  // > ops::sum_of_squares(x) is a double. What is summed over the world, the norm of a rank's part
  // > or something else? With a CpuDevice host, View(&number, {1}, DType::F64, host) is a buffer
  // > of one double.
  double square = 0;
  for (const HeldGradient& h : held)
    if (counts(h, place)) square += ops::sum_of_squares(h.gradient);
  CpuDevice host;
  const View of_all(&square, {1}, DType::F64, host);
  world.all_reduce(of_all).wait();  // comm: 8 bytes; each element is in one rank's share of it
  return std::sqrt(square);
  // END LAB 11.3
}

}  // namespace aisc
