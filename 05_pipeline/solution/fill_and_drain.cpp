// The pipeline fills with forwards and drains with backwards: one micro-batch at a time, or all.
#include "05_pipeline/schedule_parts.h"
#include "05_pipeline/schedules.h"

namespace aisc {

// Rank 0 has nothing to do between F0 and B0, and B0 comes when all other ranks are through.
Schedule naive(int ranks, int micro_batches) {
  Schedule schedule = empty_schedule("naive", ranks, micro_batches);
  for (std::vector<Action>& list : schedule.actions)
    for (int k = 0; k < micro_batches; ++k)
      for (const ActionKind kind : {ActionKind::Forward, ActionKind::Backward})
        list.push_back({kind, k});
  append_updates(schedule);
  return schedule;
}

Schedule gpipe(int ranks, int micro_batches) {
  Schedule schedule = empty_schedule("gpipe", ranks, micro_batches);
  for (std::vector<Action>& list : schedule.actions) {
    // LAB 05.1: GPipe's order
    // > All forwards, then all backwards, micro-batches 0, 1, 2 ... in both: `list` is one rank's.
    // > An action is {ActionKind::Forward, k}: a rank has one chunk, 0, which may be left out. The
    // > update comes behind the region.
    for (int k = 0; k < micro_batches; ++k) list.push_back({ActionKind::Forward, k});
    for (int k = 0; k < micro_batches; ++k) list.push_back({ActionKind::Backward, k});
    // END LAB 05.1
  }
  append_updates(schedule);
  return schedule;
}

}  // namespace aisc
