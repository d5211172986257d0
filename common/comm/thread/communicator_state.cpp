#include "common/comm/thread/communicator_state.h"

#include <utility>

namespace aisc::thread {

CommunicatorState::CommunicatorState(std::shared_ptr<World> its_world, const std::string& its_name,
                                     std::vector<int> its_ranks)
    : world(std::move(its_world)),
      name(world->keep(its_name)),
      ranks(std::move(its_ranks)),
      rendezvous(*this),
      mailboxes(ranks.size()) {}

}  // namespace aisc::thread
