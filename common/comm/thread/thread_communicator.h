// The communicator of one rank that is a thread.
#pragma once

#include <memory>

#include "common/comm/communicator.h"
#include "common/comm/thread/group.h"

namespace aisc::thread {

// Of `rank` of `group`; used by that rank's thread alone.
std::unique_ptr<Communicator> make_communicator(std::shared_ptr<Group> group, int rank);

// The group of all ranks of a world.
std::shared_ptr<Group> make_world_group(const WorldOptions& options, const std::string& name);

}  // namespace aisc::thread
