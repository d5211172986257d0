// The part of launch() for ranks that are processes: in mpi/, or in no_mpi.cpp where MPI is not
// there.
#pragma once

#include <functional>

#include "common/comm/launch.h"

namespace aisc {

void launch_processes(const LaunchOptions& options, const std::function<void(Rank)>& body);

}  // namespace aisc
