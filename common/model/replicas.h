// One rank in place of many that do the same.
#pragma once

#include <memory>
#include <string>

#include "common/comm/network.h"
#include "common/comm/plan.h"
#include "common/comm/rank.h"

namespace aisc {

// A communicator of `size` ranks of which rank 0 alone runs, in virtual time, where all others do
// the same work with as much data: data-parallel replicas with equal shares of a batch, each with
// the whole model or, without numbers, with an equal shard of it. Each of its collectives is
// followed on all ranks (comm/simulate.h), which may begin and end it at times
// of their own; messages, bytes and, up to rounding, seconds of rank 0 are those of a launch of all
// of them; of collectives that are under way at once, the later one's messages pass shared cards
// behind all of the earlier one's. Sums of what lies on the host are `size` times its own; of an
// all-to-all nothing comes: `out` stays as it is.
//
// What depends on the others' counts or, where there are numbers, on their data (sends, split,
// unequal parts of an all-to-all; with numbers all gathers, too), and a product or a sum of
// integers, is an Error, and so are more than 4,096 ranks. The network must outlive it.
std::unique_ptr<Communicator> make_replicas(int size, const Network& network, const Rank& rank,
                                            PlanTable plans = default_plans(),
                                            std::string name = "world");

}  // namespace aisc
