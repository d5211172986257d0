#include "05_pipeline/more/bidirectional.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>

#include "05_pipeline/schedule_parts.h"
#include "common/core/error.h"

namespace aisc {
namespace {

// At least p micro-batches in each direction, p even; bidirectional.h has the phases.
std::vector<Action> dual_pipe_list(int ranks, int rank, int micro_batches) {
  const int near = rank < ranks / 2 ? 0 : 1, far = 1 - near;
  const int from_end = std::min(rank, ranks - 1 - rank), from_centre = ranks / 2 - 1 - from_end;
  TwoChunkList list;
  for (int i = 0; i < 2 * from_centre; ++i) list.forward(near);
  for (int i = 0; i < from_end + 1; ++i) {
    list.forward(near);
    list.forward(far);
  }
  for (int i = 0; i < from_centre; ++i) {
    list.whole_backward(far);
    list.forward(far);
  }
  for (int i = 0; i < micro_batches - ranks + from_end + 1; ++i) {
    list.forward(near);
    list.whole_backward(far);
    list.forward(far);
    list.whole_backward(near);
  }
  for (int i = 0; i < from_centre; ++i) {
    list.whole_backward(far);
    list.forward(far);
    list.whole_backward(near);
  }
  std::deque<int> waiting;  // chunks of weight gradients
  for (int i = 0; i < 2 * (from_end + 1); ++i) {
    const int chunk = i % 2 == 0 ? far : near;
    list.backward(chunk);
    if (i < from_end + 1)
      list.weight_gradient(chunk);
    else
      waiting.push_back(chunk);
  }
  for (int i = 0; i < from_centre; ++i) {
    list.weight_gradient(waiting.front());
    waiting.pop_front();
    list.backward(near);
    waiting.push_back(near);
  }
  for (const int chunk : waiting) list.weight_gradient(chunk);
  return list.actions();
}

}  // namespace

Schedule dual_pipe(int ranks, int micro_batches) {
  Schedule schedule = empty_down_and_up("dualpipe", ranks, micro_batches);
  schedule.copies = 2;
  if (ranks % 2 != 0 || micro_batches % 2 != 0)
    fail(fmt::format("dualpipe: {} ranks and {} micro-batches, even numbers expected", ranks,
                     micro_batches));
  check_at_least(schedule.name, micro_batches, fmt::format("micro-batches on {} ranks", ranks),
                 2 * ranks);
  schedule.micro_batches = micro_batches / 2;
  for (int rank = 0; rank < ranks; ++rank)
    schedule.actions[index(rank)] = dual_pipe_list(ranks, rank, schedule.micro_batches);
  append_updates(schedule);
  return schedule;
}

Schedule dual_pipe_v(int ranks, int micro_batches) {
  Schedule schedule = empty_down_and_up("dualpipe-v", ranks, micro_batches);
  check_at_least(schedule.name, micro_batches, fmt::format("micro-batches on {} ranks", ranks),
                 2 * ranks);
  for (int rank = 0; rank < ranks; ++rank)
    schedule.actions[index(rank)] = dual_pipe_list(2 * ranks, rank, micro_batches);
  append_updates(schedule);
  return schedule;
}

}  // namespace aisc
