// How much of an all_reduce hides behind computation, on ranks that are processes.
#pragma once

#include <string>

#include "bench/rank_command.h"
#include "common/comm/rank.h"

namespace aisc {

// Seconds of the slowest rank, medians of the rounds.
struct Overlap {
  double communication = 0;  // an all_reduce, alone
  double computation = 0;    // about as long, alone
  double both = 0;           // the all_reduce is started, then computed, then waited for
  double hidden = 0;         // (communication + computation - both) / the shorter: 1 is all of it
};

// Called by all ranks. The computation is arithmetic in registers on the rank's own thread, or, for
// OverlapAsleep, a sleep: as if a device of its own computed. With command.records the last round
// is written to `file` by rank 0, the ranks of one node side by side.
Overlap measure_overlap(const Rank& rank, const RankCommand& command, const std::string& file);

}  // namespace aisc
