// Yours to write; from 05_pipeline/solution/interleaved.cpp (stub 6a065f03aa82).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
// Each rank has several thin stages instead of a thick one, so the pipeline fills v times faster.
//
// All ranks have the same order of forwards, and the same of backwards; they differ in how many
// forwards come first. Two ranks, two chunks (the number behind the point), four micro-batches:
//
//   forwards   F0.0 F1.0 F0.1 F1.1 F2.0 F3.0 F2.1 F3.1
//   backwards  B0.1 B1.1 B0.0 B1.0 B2.1 B3.1 B2.0 B3.0
#include <fmt/format.h>

#include <algorithm>

#include "05_pipeline/schedule_parts.h"
#include "05_pipeline/schedules.h"
#include "common/core/error.h"

namespace aisc {

Schedule interleaved(int ranks, int chunks, int micro_batches) {
  Schedule schedule = empty_schedule("interleaved", ranks, micro_batches);
  check_at_least(schedule.name, chunks, "chunks", 2);
  if (micro_batches % ranks != 0)
    fail(fmt::format("interleaved: {} micro-batches, a multiple of the {} ranks expected",
                     micro_batches, ranks));
  schedule.stage_of = round_robin(ranks, chunks);
  const int count = micro_batches * chunks;  // forwards of a rank
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Action>& list = schedule.actions[static_cast<std::size_t>(rank)];
    // LAB 05.6: interleaving
    // `list` is one rank's: `count` forwards and as many backwards, in the order at the top of this
    // file and of schedules.h. An action is {kind, micro_batch, chunk}.
    throw NotImplemented("lab 05.6: interleaving", __FILE__, __LINE__);
    // END LAB 05.6
  }
  append_updates(schedule);
  return schedule;
}

}  // namespace aisc
