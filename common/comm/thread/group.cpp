#include "common/comm/thread/group.h"

#include <utility>

namespace aisc::thread {

Group::Group(std::shared_ptr<World> its_world, const std::string& its_name,
             std::vector<int> its_ranks, std::uint64_t its_key)
    : world(std::move(its_world)),
      name(world->keep(its_name)),
      ranks(std::move(its_ranks)),
      key(its_key),
      rendezvous(*this),
      mailboxes(ranks.size()) {}

}  // namespace aisc::thread
