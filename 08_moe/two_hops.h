// An all-to-all of rows inside nodes and then between them.
#pragma once

#include "08_moe/exchange.h"

namespace aisc {

// (g, N/g): of each rank of this node, the rows for each node that pass by this rank; of rows for
// rank p, `sent` (N). Collective in the node: 8 N/g bytes to each of its ranks.
std::vector<std::int64_t> passing_of(const ExpertRanks& ranks,
                                     const std::vector<std::int64_t>& sent);

// x (M, C) sorted by destination -> sorted by origin, and back. The first hop is over when it
// returns.
Travelling two_hops_there(const ExpertRanks& ranks, const Tensor& x, const Route& route);
Travelling two_hops_back(const ExpertRanks& ranks, const Tensor& y, const Route& route);

// One all-to-all of rows: `sent` to each rank, `received` from each.
Travelling one_hop(Communicator& ranks, const Tensor& x, const std::vector<std::int64_t>& sent,
                   const std::vector<std::int64_t>& received);

}  // namespace aisc
