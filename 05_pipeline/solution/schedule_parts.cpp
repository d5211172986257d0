#include "05_pipeline/schedule_parts.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/core/error.h"

namespace aisc {

void check_at_least(const std::string& name, int found, const std::string& of_these, int least) {
  if (found < least)
    fail(fmt::format("{}: {} {}, at least {} expected", name, found, of_these, least));
}

Schedule empty_schedule(const std::string& name, int ranks, int micro_batches) {
  check_at_least(name, ranks, "ranks", 1);
  check_at_least(name, micro_batches, "micro-batches", 1);
  return {.name = name,
          .micro_batches = micro_batches,
          .stage_of = one_stage_each(ranks),
          .actions = std::vector<std::vector<Action>>(static_cast<std::size_t>(ranks))};
}

Schedule empty_down_and_up(const std::string& name, int ranks, int micro_batches) {
  Schedule schedule = empty_schedule(name, ranks, micro_batches);
  schedule.stage_of = down_and_up(ranks);
  schedule.splits_backward = true;
  return schedule;
}

void append_updates(Schedule& schedule) {
  for (std::vector<Action>& list : schedule.actions)
    for (int chunk = 0; chunk < schedule.chunks(); ++chunk)
      list.push_back({ActionKind::Update, schedule.micro_batches - 1, chunk});
}

int TwoChunkList::count(ActionKind kind, int chunk) const {
  return static_cast<int>(std::count_if(
      actions_.begin(), actions_.end(),
      [&](const Action& action) { return action.kind == kind && action.chunk == chunk; }));
}

}  // namespace aisc
