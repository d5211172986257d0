// What the algorithms of log2 p steps cost on a flat network, and that on two levels. See
// algorithms.h: Cost; all of these are exact for every number of ranks.
#pragma once

#include "09_collectives/algorithms.h"

namespace aisc {

// halving.h
Cost recursive_halving_cost(int ranks, double bytes, const Network& network, const Tuning& tuning);
Cost recursive_doubling_all_gather_cost(int ranks, double bytes, const Network& network,
                                        const Tuning& tuning);
// bruck.h
Cost bruck_all_gather_cost(int ranks, double bytes, const Network& network, const Tuning& tuning);
Cost bruck_all_to_all_cost(int ranks, double bytes, const Network& network, const Tuning& tuning);
// two_level.h, by tuning.ranks_per_node. Throws Error where that is below 1.
Cost two_level_cost(int ranks, double bytes, const Network& network, const Tuning& tuning);

}  // namespace aisc
