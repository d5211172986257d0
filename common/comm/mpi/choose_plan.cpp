#include "common/comm/mpi/choose_plan.h"

namespace aisc::mpi {

Plan choose_plan(const Collective& collective, int rank, int size) {
  static const PlanTable defaults = default_plans();
  return defaults[collective.call.op](collective, rank, size);
}

}  // namespace aisc::mpi
