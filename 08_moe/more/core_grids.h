// Five ways to divide weights and data over 16 cores (Fedus et al., "Switch Transformers", arXiv
// 2101.03961, figure 9), as meshes.
#pragma once

#include <span>
#include <string>

#include "common/comm/mesh.h"

namespace aisc {

struct WayToDivide {
  const char* name;
  MeshShape mesh;  // of 16 ranks
  bool experts;    // else the model has none
};
std::span<const WayToDivide> five_ways();

// Which part a core has: of dense weights (of tp parts), of the experts (of ep x tp parts of whole
// experts; figure 9 cuts each expert in tp parts), of the data (of dp x cp parts).
struct CoreParts {
  int weights, experts, data;
};
CoreParts parts_of_core(int core, const MeshShape& mesh);

// Three grids of 4 x 4 cores beside each other, the number of its part in each; no grid of experts
// where there are none.
std::string core_grids(const WayToDivide& way);

}  // namespace aisc
