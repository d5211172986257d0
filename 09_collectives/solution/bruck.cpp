// Chunks are held in scratch in a turned order, that begins with this rank's own. Copies run at the
// end of the step that they stand in.
#include "09_collectives/bruck.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "common/core/error.h"

namespace aisc {
namespace {

using Where = Piece::Where;

// i counted round, for i >= -size.
int wrap(int i, int size) { return (i + size) % size; }

}  // namespace

Plan bruck_all_gather(const Collective& c, int rank, int size) {
  // LAB 09.9: Bruck
  // > Who lacks what after the steps of distance 1, 2, ..., d / 2? And in the last step, where p is
  // > no power of two?
  const auto chunks = [&](Where where, int begin, int n) {
    return Piece{.where = where, .begin = begin * c.call.count, .count = n * c.call.count};
  };
  const Piece own = chunks(Where::In, 0, 1);
  Plan plan{.name = "bruck all_gather", .scratch_count = size * c.call.count};
  for (int d = 1; d < size; d *= 2) {
    plan.end_step();
    const int n = std::min(d, size - d);
    const Piece held = d == 1 ? own : chunks(Where::Scratch, 0, n);
    plan.send(wrap(rank - d, size), held);  // comm: n/p d, or what is missing, to d on the left
    plan.recv(wrap(rank + d, size), chunks(Where::Scratch, d, n));
    if (d == 1) plan.copy(chunks(Where::Scratch, 0, 1), own);
  }
  const int after = size - rank;  // scratch holds chunks rank .. size - 1, then 0 .. rank - 1
  plan.copy(chunks(Where::Out, rank, 1), own);
  plan.copy(chunks(Where::Out, rank + 1, after - 1), chunks(Where::Scratch, 1, after - 1));
  plan.copy(chunks(Where::Out, 0, rank), chunks(Where::Scratch, after, rank));
  plan.end_step();
  return plan;
  // END LAB 09.9
}

Plan bruck_all_to_all(const Collective& c, int rank, int size) {
  // LAB 09.9: Bruck
  // > A chunk that has to go 5 ranks to the right goes 1 and 4. After all steps: from whom is what
  // > lies at place i? Copies before the first message need a step of their own.
  if (c.call.op == CommOp::AllToAllV)
    fail("bruck all_to_all: the call is an all_to_all_v, equal counts expected");
  const auto chunk = [&](Where where, int i, int n = 1) {
    return Piece{.where = where, .begin = i * c.call.count, .count = n * c.call.count};
  };
  const auto turned = [&](int i) { return chunk(Where::Scratch, i); };
  const int packed = size, arrived = packed + size / 2;  // where messages lie in scratch
  Plan plan{.name = "bruck all_to_all", .scratch_count = (arrived + size / 2) * c.call.count};
  for (int i = 0; i < size; ++i) plan.copy(turned(i), chunk(Where::In, wrap(rank + i, size)));
  for (int d = 1; d < size; d *= 2) {
    int n = 0;  // of the chunks that move
    for (int i = 0; i < size; ++i)
      if ((i & d) != 0) plan.copy(chunk(Where::Scratch, packed + n++), turned(i));
    plan.end_step();
    plan.send(wrap(rank + d, size), chunk(Where::Scratch, packed, n));  // comm: about n/2, d on
    plan.recv(wrap(rank - d, size), chunk(Where::Scratch, arrived, n));
    n = 0;
    for (int i = 0; i < size; ++i)
      if ((i & d) != 0) plan.copy(turned(i), chunk(Where::Scratch, arrived + n++));
  }
  for (int i = 0; i < size; ++i) plan.copy(chunk(Where::Out, wrap(rank - i, size)), turned(i));
  plan.end_step();
  return plan;
  // END LAB 09.9
}

}  // namespace aisc
