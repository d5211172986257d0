// A communicator of ranks that are processes.
#pragma once

#include <memory>

#include "common/comm/communicator.h"
#include "common/comm/mpi/engine.h"

namespace aisc::mpi {

std::unique_ptr<Communicator> make_communicator(std::shared_ptr<World> world,
                                                std::shared_ptr<Group> group);

}  // namespace aisc::mpi
