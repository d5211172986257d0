// A communicator of ranks that are processes.
#pragma once

#include <memory>

#include "common/comm/communicator.h"
#include "common/comm/mpi/world.h"

namespace aisc::mpi {

std::unique_ptr<Communicator> make_communicator(std::shared_ptr<World> world,
                                                std::shared_ptr<Members> members);

}  // namespace aisc::mpi
