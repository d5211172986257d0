// A backward as soon as there is one: what has been through is out of memory.
//
// Micro-batch k reaches the last rank of p after p - 1 forwards of other ranks, and its gradient
// comes back to rank r after p - 1 - r backwards. Rank r needs so many micro-batches on their way
// beside its own to be busy from then on; more would only lie there. Four ranks, from 0 on:
//
//   rank 0  F0 F1 F2 | F3 B0 F4 B1 ...
//   rank 1  F0 F1 | F2 B0 F3 B1 ...
//   rank 2  F0 | F1 B0 F2 B1 ...
//   rank 3  | F0 B0 F1 B1 ...
#include <algorithm>

#include "05_pipeline/schedule_parts.h"
#include "05_pipeline/schedules.h"

namespace aisc {

Schedule one_f_one_b(int ranks, int micro_batches) {
  Schedule schedule = empty_schedule("1f1b", ranks, micro_batches);
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Action>& list = schedule.actions[static_cast<std::size_t>(rank)];
    // LAB 05.2: one forward, one backward
    // > How many forwards come first on `rank`, so that a backward follows each later forward?
    // > There may be fewer micro-batches than that. The list has all forwards and all backwards,
    // > each on chunk 0, the rank's only one: {ActionKind::Forward, k}.
    const int first = std::min(ranks - rank - 1, micro_batches);
    for (int k = 0; k < first; ++k) list.push_back({ActionKind::Forward, k});
    for (int k = first; k < micro_batches; ++k) {
      list.push_back({ActionKind::Forward, k});
      list.push_back({ActionKind::Backward, k - first});
    }
    for (int k = micro_batches - first; k < micro_batches; ++k)
      list.push_back({ActionKind::Backward, k});
    // END LAB 05.2
  }
  append_updates(schedule);
  return schedule;
}

}  // namespace aisc
