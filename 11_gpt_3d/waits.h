// Which rank waits for which: reading the traces of a run that stands still.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/comm/call.h"

namespace aisc {

// A call that a rank has begun. Its ranks meet in it: all of a collective's communicator, or the
// two sides of a message. Both sides of a message are written down as CommOp::Send, with the sender
// as ranks[0]: {0, 1} is sent by rank 0, {1, 0} by rank 1.
struct TracedCall {
  std::string communicator;  // "tp 0": each group has a name of its own
  CommOp op;
  std::vector<int> ranks;  // of the world
  double begin_seconds = 0;
  std::optional<double> end_seconds = {};  // none: it never came back
};

// A rank is in the first of its calls that have no end: it waits there. Those that it has begun
// behind it are under way beside it.
struct TracedRank {
  std::vector<TracedCall> calls = {};  // in the order in which they began
  bool ended = false;                  // it died, or left; in calls without an end it died inside
};

// A call meets the calls of its other ranks with the same communicator and the same ranks, and
// among these with the same number: the first there the first here. So a rank waits for those that
// have not begun theirs, or died inside it; in the order of the call's ranks. Empty: it is
// computing, or has ended, or all have come.
//
// Three ranks in an all-reduce, of which rank 2 has not come: ranks 0 and 1 wait for 2.
std::vector<int> waits_for(const std::vector<TracedRank>& ranks, int rank);

// True: it is in a call, and one that this call meets is of another operation, as where one rank
// sums and the other gathers.
bool mismatched(const std::vector<TracedRank>& ranks, int rank);

// Where to look, in rising order: ranks in mismatched calls; ranks that others wait for and that
// wait for nobody themselves (they compute, or have ended); ranks that wait for each other in a
// circle. Empty: nobody waits, and nothing is mismatched.
std::vector<int> causes(const std::vector<TracedRank>& ranks);

}  // namespace aisc
