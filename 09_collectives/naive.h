// The sum as one would have it first: all send to one, who adds and sends to all.
#pragma once

#include "common/comm/plan.h"

namespace aisc {

// All ranks send their buffer to rank 0, who adds them in the order of the ranks, and sends the sum
// to each. A parameter server of one. Steps: 2. Bytes: rank 0 sends (p - 1) n, and receives as
// many. Seconds: 2 a + 2 (p - 1) n b + (p - 1) n g.
Plan naive_all_reduce(const Collective& c, int rank, int size);

}  // namespace aisc
