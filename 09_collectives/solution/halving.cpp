// Partners at distances q/2, ..., 2, 1, or the other way round. The numbers v = 0 .. q - 1 are
// those of the ranks that go on (fold.h); in the step of distance d number v talks to v ^
// d.
#include "09_collectives/halving.h"

#include <algorithm>

#include "common/comm/fold.h"

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
  // > Fold says who goes on, and as which number; chunks_before says where a number's chunks begin.
  // > `in` is not yours to write: where can a sum be made without copying `in` first?
  const std::int64_t count = c.call.count;
  const Fold fold(rank, size);
  const Piece all = piece(Where::In, size * count), out = piece(Where::Out, count);
  Plan plan{.name = "recursive halving reduce_scatter"};
  if (!fold.goes_on) {
    plan.send(fold.partner, all);  // comm: n to the partner, who goes on for both
    plan.end_step();
    plan.recv(fold.partner, out);
    plan.end_step();
    return plan;
  }
  // What arrives stays where it is, and the own part is added to it: so the sum is in `in` at
  // first, and in a new place after each step.
  Piece sum = all;
  const auto add_to_what_comes = [&](int peer, Piece part) {
    const Piece arrived = piece(Where::Scratch, part.count, plan.scratch_count);
    plan.scratch_count += part.count;
    plan.recv(peer, arrived);
    plan.reduce(arrived, part);
    sum = arrived;
  };
  if (fold.paired) add_to_what_comes(fold.partner, all);
  for (int d = fold.q / 2; d > 0; d /= 2) {
    plan.end_step();
    const int mine = fold.v / d * d, theirs = mine ^ d;  // first numbers of both halves
    const int first = chunks_before(fold, std::min(mine, theirs));
    const auto half = [&](int w) {
      const int begin = chunks_before(fold, w), end = chunks_before(fold, w + d);
      return piece(sum.where, (end - begin) * count, sum.begin + (begin - first) * count);
    };
    const int peer = fold.rank_of(fold.v ^ d);
    plan.send(peer, half(theirs));  // comm: about n d / q, the other half's sum so far
    add_to_what_comes(peer, half(mine));
  }
  const int first = chunks_before(fold, fold.v);  // of the one or two chunks that are left
  plan.copy(out, piece(sum.where, count, sum.begin + (rank - first) * count));
  plan.end_step();
  if (fold.paired)
    plan.send(fold.partner, piece(sum.where, count, sum.begin));  // comm: n/p, the partner's chunk
  plan.end_step();
  return plan;
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
  // > What number v holds when a step of distance d is over is chunk v / d of q / d.
  const Fold fold(rank, size);
  const int q = fold.q, v = fold.v;
  const Piece all = piece(Where::Out, c.call.count);
  Plan plan{.name = "rabenseifner all_reduce"};
  if (!fold.goes_on) {
    plan.send(fold.partner, all);  // comm: n to the partner, who goes on for both
    plan.end_step();
    plan.recv(fold.partner, all);
    plan.end_step();
    return plan;
  }
  const auto block = [&](int w, int d) { return chunk_of(Where::Out, all.count, w / d, q / d); };
  const auto add_what_comes = [&](int peer, Piece sum) {
    const Piece arrived = piece(Where::Scratch, sum.count);
    plan.scratch_count = std::max(plan.scratch_count, sum.count);
    plan.recv(peer, arrived);
    plan.reduce(sum, arrived);
    plan.end_step();
  };
  if (fold.paired) add_what_comes(fold.partner, all);
  for (int d = q / 2; d > 0; d /= 2) {
    const int peer = fold.rank_of(v ^ d);
    plan.send(peer, block(v ^ d, d));  // comm: n d / q, the sum so far of the other half
    add_what_comes(peer, block(v, d));
  }
  for (int d = 1; d < q; d *= 2) {
    const int peer = fold.rank_of(v ^ d);
    plan.send(peer, block(v, d));  // comm: n d / q, complete sums
    plan.recv(peer, block(v ^ d, d));
    plan.end_step();
  }
  if (fold.paired) plan.send(fold.partner, all);  // comm: n, the whole sum
  plan.end_step();
  return plan;
  // END LAB 09.8
}

}  // namespace aisc
