// What the ranks of one communicator share.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/comm/thread/mailbox.h"
#include "common/comm/thread/rendezvous.h"
#include "common/comm/thread/world.h"

namespace aisc::thread {

struct CommunicatorState : std::enable_shared_from_this<CommunicatorState> {
  // `ranks`: world ranks by rank of the communicator.
  CommunicatorState(std::shared_ptr<World> its_world, const std::string& its_name,
                    std::vector<int> its_ranks);

  int size() const { return static_cast<int>(ranks.size()); }
  int world_rank(int rank) const { return ranks[static_cast<std::size_t>(rank)]; }

  const std::shared_ptr<World> world;
  const std::string* const name;
  const std::vector<int> ranks;
  Rendezvous rendezvous;
  std::vector<Mailbox> mailboxes;  // by receiver
};

}  // namespace aisc::thread
