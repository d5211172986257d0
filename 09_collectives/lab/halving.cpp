// Yours to write; from 09_collectives/solution/halving.cpp (stub 1a3b738ce1e3).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
// Partners at distances q/2, ..., 2, 1, or the other way round. The numbers v = 0 .. q - 1 are
// those of the ranks that go on (fold.h); in the step of distance d number v talks to v ^
// d.
#include "09_collectives/halving.h"

#include <algorithm>

#include "common/comm/fold.h"
#include "common/core/error.h"

namespace aisc {
namespace {

using Where = Piece::Where;

Piece piece(Where where, std::int64_t count, std::int64_t begin = 0) {
  return {.where = where, .begin = begin, .count = count};
}

// How many ranks' chunks come before those of number v: each pair has two of them.
int chunks_before(const Fold& fold, int v) { return v + std::min(v, fold.pairs); }

}  // namespace

Plan recursive_halving_reduce_scatter(const Collective& c, int rank, int size) {
  // LAB 09.7: recursive halving
  // Fold says who goes on, and as which number; chunks_before says where a number's chunks begin.
  // `in` is not yours to write: where can a sum be made without copying `in` first?
  throw NotImplemented("lab 09.7: recursive halving", __FILE__, __LINE__);
  // END LAB 09.7
}

// Copies run at the end of the step that they stand in: who sends in its first step sends `in`.
Plan recursive_doubling_all_gather(const Collective& c, int rank, int size) {
  const std::int64_t count = c.call.count;
  const Fold fold(rank, size);
  const Piece own = piece(Where::In, count);
  const auto chunks = [&](int begin, int end) {
    return piece(Where::Out, (end - begin) * count, begin * count);
  };
  Plan plan{.name = "recursive doubling all_gather"};
  plan.copy(chunks(rank, rank + 1), own);
  if (!fold.goes_on) {
    plan.send(fold.partner, own);  // comm: n/p to the partner, who goes on for both
    plan.end_step();
    plan.recv(fold.partner, chunks(0, rank));
    plan.recv(fold.partner, chunks(rank + 1, size));
    plan.end_step();
    return plan;
  }
  if (fold.paired) {
    plan.recv(fold.partner, chunks(rank - 1, rank));
    plan.end_step();
  }
  for (int d = 1; d < fold.q; d *= 2) {
    const auto block = [&](int w) {  // of the d numbers from w on
      return chunks(chunks_before(fold, w), chunks_before(fold, w + d));
    };
    const int peer = fold.rank_of(fold.v ^ d), mine = fold.v / d * d;
    const Piece held = d == 1 && !fold.paired ? own : block(mine);
    plan.send(peer, held);  // comm: n d / q or more, all that this block of ranks has
    plan.recv(peer, block(mine ^ d));
    plan.end_step();
  }
  if (fold.paired) {
    plan.send(fold.partner, chunks(0, rank - 1));  // comm: what is before the partner's chunk
    plan.send(fold.partner, chunks(rank, size));   // comm: and what is behind it
  }
  plan.end_step();
  return plan;
}

Plan rabenseifner_all_reduce(const Collective& c, int rank, int size) {
  // LAB 09.8: Rabenseifner
  // What number v holds when a step of distance d is over is chunk v / d of q / d.
  throw NotImplemented("lab 09.8: Rabenseifner", __FILE__, __LINE__);
  // END LAB 09.8
}

}  // namespace aisc
