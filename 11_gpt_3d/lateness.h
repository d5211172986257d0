// Which rank keeps the others waiting: reading the traces of a run that went well, but slowly.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "11_gpt_3d/waits.h"

namespace aisc {

struct Lateness {
  std::int64_t calls = 0;  // to which a rank came last,
  double seconds = 0;      // and for which its other ranks waited so long, all together
};

// By rank, of those that came last to a call. Calls meet as in waits_for(): those of one
// communicator and the same ranks, the first of each rank the first of the others. What not all of
// a call's ranks have in their traces is left out. Of ranks that begin at the same moment the
// lowest is taken for the last.
//
// Three ranks begin a sum at 1, 4 and 2 seconds: rank 1 came last, and the others waited for it 3
// and 2 seconds: {1: 1 call, 5 s}.
std::map<int, Lateness> lateness(const std::vector<TracedRank>& ranks);

}  // namespace aisc
