// Two stages a rank, down and up again: the last stage is on rank 0, which so has backwards at
// once.
#include <algorithm>

#include "05_pipeline/schedule_parts.h"
#include "05_pipeline/schedules.h"

namespace aisc {
namespace {

using enum ActionKind;

// At least 2p - 1 micro-batches.
std::vector<Action> zb_v_list(int ranks, int rank, int micro_batches) {
  TwoChunkList list;
  for (int i = 0; i < 2 * (ranks - rank) - 1; ++i) list.forward(0);
  for (int i = 0; i < rank; ++i) {
    list.forward(1);
    list.forward(0);
  }
  for (int i = 0; i < ranks - rank; ++i) {
    list.forward(1);
    list.whole_backward(1);
  }
  while (list.count(Forward, 1) < micro_batches) {
    if (list.count(Forward, 0) < micro_batches) list.forward(0);
    list.whole_backward(0);
    list.forward(1);
    list.whole_backward(1);
  }
  for (int i = 0; i < rank; ++i) {
    list.backward(0);
    list.backward(1);
  }
  for (int i = 0; i < ranks - rank; ++i) list.whole_backward(0);
  for (const int chunk : {1, 0})
    while (list.count(WeightGradient, chunk) < micro_batches) list.weight_gradient(chunk);
  return list.actions();
}

}  // namespace

Schedule zb_v(int ranks, int micro_batches) {
  Schedule schedule = empty_down_and_up("zb-v", ranks, micro_batches);
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<Action> list = zb_v_list(ranks, rank, std::max(micro_batches, 2 * ranks - 1));
    std::erase_if(list, [&](const Action& a) { return a.micro_batch >= micro_batches; });
    schedule.actions[static_cast<std::size_t>(rank)] = std::move(list);
  }
  append_updates(schedule);
  return schedule;
}

}  // namespace aisc
