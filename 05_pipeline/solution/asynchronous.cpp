// 1F1B without flush: weights change while later micro-batches are on their way.
#include <fmt/format.h>

#include "05_pipeline/schedule_parts.h"
#include "05_pipeline/schedules.h"

namespace aisc {
namespace {

// Rank r lets p - r micro-batches in (the paper's NUM_OPT_ACTIVE_MINIBATCHES of a straight
// pipeline); then each backward, and the update with every `period`-th of them, makes room for a
// forward.
void fill_without_flush(Schedule& schedule, int period) {
  for (int rank = 0; rank < schedule.ranks(); ++rank) {
    std::vector<Action>& list = schedule.actions[static_cast<std::size_t>(rank)];
    int forwards = 0, backwards = 0;
    while (backwards < schedule.micro_batches) {
      const bool has_room = forwards - backwards < schedule.ranks() - rank;
      if (has_room && forwards < schedule.micro_batches) {
        list.push_back({ActionKind::Forward, forwards++});
        continue;
      }
      list.push_back({ActionKind::Backward, backwards});
      if ((backwards + 1) % period == 0) list.push_back({ActionKind::Update, backwards});
      ++backwards;
    }
  }
}

}  // namespace

Schedule pipedream(int ranks, int micro_batches) {
  Schedule schedule = empty_schedule("pipedream", ranks, micro_batches);
  fill_without_flush(schedule, 1);
  return schedule;
}

Schedule two_bw(int ranks, int micro_batches, int updates) {
  check_at_least("2bw", updates, "updates", 1);
  Schedule schedule = empty_schedule("2bw", ranks, micro_batches);
  check_at_least("2bw", micro_batches, fmt::format("micro-batches an update of {} ranks", ranks),
                 ranks);
  schedule.micro_batches = micro_batches * updates;
  fill_without_flush(schedule, micro_batches);
  return schedule;
}

}  // namespace aisc
