// Another rank waits for the gradient of the input; nobody waits for that of the weights. So the
// second one is done when there is nothing better to do.
//
// Two ranks, three micro-batches, H1: rank 1 does not begin with W0, so that rank 0 has B1 earlier.
//
//   rank 0  F0 F1    B0 W0 F2 B1 W1 B2 W2
//   rank 1     F0 B0 F1 B1 W0 F2 B2 W1 W2
#include <algorithm>

#include "05_pipeline/schedule_parts.h"
#include "05_pipeline/schedules.h"

namespace aisc {

Schedule zb_h1(int ranks, int micro_batches) {
  Schedule schedule = empty_schedule("zb-h1", ranks, micro_batches);
  schedule.splits_backward = true;
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Action>& list = schedule.actions[static_cast<std::size_t>(rank)];
    // LAB 05.7: weight gradients that wait
    // > `list` is one rank's: a forward, a backward and a weight gradient of each micro-batch, in the
    // > order of schedules.h. {ActionKind::WeightGradient, k} is one. The update comes behind it.
    const int first = std::min(ranks - rank, micro_batches);
    for (int k = 0; k < first; ++k) list.push_back({ActionKind::Forward, k});
    for (int k = 0; k < micro_batches; ++k) {
      list.push_back({ActionKind::Backward, k});
      if (k >= rank) list.push_back({ActionKind::WeightGradient, k - rank});
      if (k + first < micro_batches) list.push_back({ActionKind::Forward, k + first});
    }
    for (int k = std::max(micro_batches - rank, 0); k < micro_batches; ++k)
      list.push_back({ActionKind::WeightGradient, k});
    // END LAB 05.7
  }
  append_updates(schedule);
  return schedule;
}

// H1's rank 2r of 2p - 1 begins with 2p - 1 - 2r = 2(p - r) - 1 forwards, and its weight gradients
// wait for 2r micro-batches.
Schedule zb_h2(int ranks, int micro_batches) {
  Schedule schedule = empty_schedule("zb-h2", ranks, micro_batches);
  schedule.splits_backward = true;
  const Schedule longer = zb_h1(2 * ranks - 1, micro_batches);
  for (std::size_t rank = 0; rank < schedule.actions.size(); ++rank)
    schedule.actions[rank] = longer.actions[2 * rank];
  return schedule;
}

}  // namespace aisc
