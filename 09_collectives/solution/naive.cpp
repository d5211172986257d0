#include "09_collectives/naive.h"

namespace aisc {

Plan naive_all_reduce(const Collective& c, int rank, int size) {
  // LAB 09.2: naive_all_reduce
  // > Messages of one step are under way together, and what they bring needs a place each. Copies
  // > and sums of a step come after all of its messages.
  const std::int64_t count = c.call.count;
  const Piece all{.where = Piece::Where::Out, .begin = 0, .count = count};
  Plan plan{.name = "naive all_reduce"};
  if (rank != 0) {
    plan.send(0, all);  // comm: n to rank 0, this rank's part of the sum
    plan.end_step();
    plan.recv(0, all);
    plan.end_step();
    return plan;
  }
  plan.scratch_count = (size - 1) * count;
  for (int r = 1; r < size; ++r) {
    const Piece arrived{.where = Piece::Where::Scratch, .begin = (r - 1) * count, .count = count};
    plan.recv(r, arrived);
    plan.reduce(all, arrived);
  }
  plan.end_step();
  for (int r = 1; r < size; ++r) plan.send(r, all);  // comm: n to each rank, the sum
  plan.end_step();
  return plan;
  // END LAB 09.2
}

}  // namespace aisc
