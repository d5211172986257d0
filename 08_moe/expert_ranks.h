// The ranks that together hold all experts, and the way to them.
#pragma once

#include <memory>

#include "common/comm/communicator.h"

namespace aisc {

// Rank p of N has experts p E/N .. (p+1) E/N. With nodes of g ranks rows may take two hops: inside
// the node to the rank that has the destination's number there, and then along its rail, the ranks
// of that number in all nodes (09_collectives/rails.h). A rank then sends g - 1 + N/g - 1 messages
// in the place of N - 1, those between nodes g times as long; each row is sent up to twice.
struct ExpertRanks {
  Communicator* all = nullptr;
  std::unique_ptr<Communicator> node = {}, rail = {};  // null: one hop

  int size() const { return all->size(); }
  int rank() const { return all->rank(); }
};

// Collective. `ranks_per_node` 0, or as many as there are ranks: one hop. Throws Error where it
// does not divide them.
std::shared_ptr<const ExpertRanks> expert_ranks(Communicator& all, int ranks_per_node = 0);

}  // namespace aisc
