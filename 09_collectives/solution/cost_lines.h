// What lines and binomial trees cost, and common's direct plans: the costs of algorithms.h. One
// rank alone sends nothing; where it copies its input to its output, that is a step.
#pragma once

#include "09_collectives/algorithms.h"

namespace aisc {

Cost naive_all_reduce_cost(int ranks, double bytes, const Network& network, const Tuning& tuning);

// common/comm/plan.h; of its ring_all_reduce: choose.h
Cost ring_reduce_scatter_cost(int ranks, double bytes, const Network& network,
                              const Tuning& tuning);
Cost ring_all_gather_cost(int ranks, double bytes, const Network& network, const Tuning& tuning);
Cost tree_reduce_cost(int ranks, double bytes, const Network& network, const Tuning& tuning);
Cost tree_all_reduce_cost(int ranks, double bytes, const Network& network, const Tuning& tuning);
Cost scatter_all_gather_broadcast_cost(int ranks, double bytes, const Network& network,
                                       const Tuning& tuning);
Cost pairwise_all_to_all_cost(int ranks, double bytes, const Network& network,
                              const Tuning& tuning);
Cost dissemination_barrier_cost(int ranks, double bytes, const Network& network,
                                const Tuning& tuning);
Cost direct_all_reduce_cost(int ranks, double bytes, const Network& network, const Tuning& tuning);
Cost direct_reduce_scatter_cost(int ranks, double bytes, const Network& network,
                                const Tuning& tuning);
Cost direct_all_gather_cost(int ranks, double bytes, const Network& network, const Tuning& tuning);
Cost direct_all_to_all_cost(int ranks, double bytes, const Network& network, const Tuning& tuning);
Cost direct_broadcast_cost(int ranks, double bytes, const Network& network, const Tuning& tuning);
Cost direct_gather_cost(int ranks, double bytes, const Network& network, const Tuning& tuning);
Cost direct_scatter_cost(int ranks, double bytes, const Network& network, const Tuning& tuning);

// binomial.h; the broadcast's is that of common's tree_broadcast, too
Cost binomial_broadcast_cost(int ranks, double bytes, const Network& network, const Tuning& tuning);
Cost binomial_scatter_cost(int ranks, double bytes, const Network& network, const Tuning& tuning);
Cost binomial_gather_cost(int ranks, double bytes, const Network& network, const Tuning& tuning);

// broadcast.h
Cost chain_broadcast_cost(int ranks, double bytes, const Network& network, const Tuning& tuning);
Cost van_de_geijn_cost(int ranks, double bytes, const Network& network, const Tuning& tuning);

}  // namespace aisc
