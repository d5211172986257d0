// Where MPI was not found when this was built.
#include "common/comm/backend/launch_processes.h"
#include "common/comm/launch.h"
#include "common/core/error.h"

namespace aisc {

bool has_mpi() { return false; }

void launch_processes(const LaunchOptions& /*options*/, const std::function<void(Rank)>& /*body*/) {
  fail(
      "launch: ranks that are processes need MPI, which was not found when this program was built "
      "(Debian and Ubuntu: libopenmpi-dev openmpi-bin, then ./aisc build)");
}

}  // namespace aisc
