// Which algorithm a collective is run by, where the caller has not said.
#pragma once

#include "common/comm/plan.h"

namespace aisc::mpi {

// The same on all ranks: by the operation, its bytes and the number of ranks.
Plan choose_plan(const Collective& collective, int rank, int size);

}  // namespace aisc::mpi
