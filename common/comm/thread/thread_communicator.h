// The communicator of one rank that is a thread.
#pragma once

#include <memory>

#include "common/comm/communicator.h"
#include "common/comm/thread/communicator_state.h"

namespace aisc::thread {

// Of `rank` among those of `shared`; used by that rank's thread alone.
std::unique_ptr<Communicator> make_communicator(std::shared_ptr<CommunicatorState> shared,
                                                int rank);

// A world, and what the communicator of all its ranks shares.
std::shared_ptr<CommunicatorState> make_world_state(const WorldOptions& options,
                                                    const std::string& name);

}  // namespace aisc::thread
