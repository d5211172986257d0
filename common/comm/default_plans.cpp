// The algorithms of each collective. Ranks and chunks are counted round: after p - 1 comes 0. Both
// sides of a message know its count, so that both leave out an empty one.
#include <algorithm>
#include <utility>
#include <vector>

#include "common/comm/fold.h"
#include "common/comm/plan.h"

namespace aisc {
namespace {

using Where = Piece::Where;

// i counted round, for i >= -size.
int wrap(int i, int size) { return (i + size) % size; }

Piece piece(Where where, std::int64_t count, std::int64_t begin = 0) {
  return {.where = where, .begin = begin, .count = count};
}

// Binomial tree: v, the rank counted from the root, has its children at v + bit for the powers of
// two below v's lowest set bit. A subtree is a run of neighbours, so that few edges leave a node.
// The sum climbs from the shortest edges to the longest: a rank adds what its children send to its
// own piece, in `sum`, and sends that to its parent. `own` may be `sum`; a rank without children
// sends `own` itself.
void climb(Plan& plan, int rank, int root, int size, Piece own, Piece sum, Piece arrived) {
  const int v = wrap(rank - root, size);
  Piece mine = own;
  for (int bit = 1; bit < size; bit *= 2) {
    if ((v & bit) != 0) {
      plan.send(wrap(rank - bit, size), mine);  // comm: S to the parent, the sum of this subtree
      plan.end_step();
      return;
    }
    if (v + bit >= size) continue;
    plan.recv(wrap(rank + bit, size), arrived);
    if (mine.where != sum.where) plan.copy(sum, own);
    plan.reduce(sum, arrived);
    plan.end_step();
    mine = sum;
  }
  if (size == 1) plan.copy(sum, own);
  plan.end_step();
}

// The way back, from the longest edges to the shortest.
void descend(Plan& plan, int rank, int root, int size, Piece all) {
  const int v = wrap(rank - root, size);
  int bit = 1;
  while (bit < size && (v & bit) == 0) bit *= 2;
  if (v != 0) plan.recv(wrap(rank - bit, size), all);
  plan.end_step();
  for (bit /= 2; bit > 0; bit /= 2) {
    if (v + bit < size) plan.send(wrap(rank + bit, size), all);  // comm: S to each child
    plan.end_step();
  }
}

// Ranks with children need room for what arrives. v + 1 is the first child.
bool has_child(int rank, int root, int size) {
  const int v = wrap(rank - root, size);
  return v % 2 == 0 && v + 1 < size;
}

// Pieces of these counts, one behind the other.
std::vector<Piece> packed(Where where, const std::vector<std::int64_t>& counts) {
  std::vector<Piece> pieces;
  std::int64_t begin = 0;
  for (const std::int64_t count : counts) {
    pieces.push_back(piece(where, count, begin));
    begin += count;
  }
  return pieces;
}

Piece of_rank(const std::vector<Piece>& pieces, int r) {
  return pieces[static_cast<std::size_t>(r)];
}

// Everyone to everyone in one step. Like the pairwise exchange a rank begins with its neighbour on
// the right, so that not all send to the same rank first. `piece_for` and `piece_from` give the
// piece for and from a rank.
template <class PieceFor, class PieceFrom>
void swap_with_all(Plan& plan, int rank, int size, PieceFor piece_for, PieceFrom piece_from) {
  for (int s = 1; s < size; ++s) {
    const int to = wrap(rank + s, size), from = wrap(rank - s, size);
    plan.send(to, piece_for(to));  // comm: what is for that rank, to each of the others
    plan.recv(from, piece_from(from));
  }
}

// out = the sum of `own` and what the other ranks have sent: rank r's in `arrived(r)`.
// Contributions are added in the order of the ranks, always as the right operand, so that all ranks
// that add the same get the same bits. `own` may be `out`: of ranks other than 0 it must stay until
// its turn, and the sum grows in rank 0's piece.
template <class Arrived>
void add_in_order(Plan& plan, int rank, int size, Piece out, Piece own, Arrived arrived) {
  const Piece sum = rank == 0 ? out : arrived(0);
  if (rank == 0 && own.where != out.where) plan.copy(out, own);
  for (int r = 1; r < size; ++r) plan.reduce(sum, r == rank ? own : arrived(r));
  if (rank != 0) plan.copy(out, sum);
  plan.end_step();
}

}  // namespace

// Rank r sends to r + 1 and receives from r - 1. In step s of the first half it sends chunk r - s,
// which by then holds the sum over ranks r - s .. r, and adds what arrives to chunk r - s - 1.
// After p - 1 steps chunk r + 1 is complete on rank r; the second half passes complete chunks on.
// Each chunk is summed once, in one order, so all ranks end with the same bits.
Plan ring_all_reduce(const Collective& c, int rank, int size) {
  const int next = wrap(rank + 1, size), prev = wrap(rank - 1, size);
  const auto chunk = [&](int i) { return chunk_of(Where::Out, c.call.count, wrap(i, size), size); };
  Plan plan{.name = "ring all_reduce"};
  if (size > 1) plan.scratch_count = (c.call.count + size - 1) / size;  // the longest chunk
  for (int s = 0; s < size - 1; ++s) {
    const Piece sum = chunk(rank - s - 1), arrived = piece(Where::Scratch, sum.count);
    plan.send(next, chunk(rank - s));  // comm: S/p to the right, a partial sum
    plan.recv(prev, arrived);
    plan.reduce(sum, arrived);
    plan.end_step();
  }
  for (int s = 0; s < size - 1; ++s) {
    plan.send(next, chunk(rank + 1 - s));  // comm: S/p to the right, a complete sum
    plan.recv(prev, chunk(rank - s));
    plan.end_step();
  }
  return plan;
}

// The first half of the ring, begun one chunk earlier so that rank r ends with chunk r. `in` is not
// ours to write: the partial sum travels through two pieces of scratch, of which one is sent while
// the other receives. `out` may be chunk r of `in`, which is read in the last step only.
Plan ring_reduce_scatter(const Collective& c, int rank, int size) {
  const std::int64_t count = c.call.count;
  const int next = wrap(rank + 1, size), prev = wrap(rank - 1, size);
  const auto chunk = [&](int i) { return piece(Where::In, count, wrap(i, size) * count); };
  const auto half = [&](int s) { return piece(Where::Scratch, count, s % 2 * count); };
  Plan plan{.name = "ring reduce_scatter", .scratch_count = std::min(size - 1, 2) * count};
  for (int s = 0; s < size - 1; ++s) {
    if (s > 0) plan.reduce(half(s - 1), chunk(rank - s - 1));
    plan.end_step();
    plan.send(next, s == 0 ? chunk(rank - 1) : half(s - 1));  // comm: S/p, a partial sum
    plan.recv(prev, half(s));
  }
  plan.copy(piece(Where::Out, count), chunk(rank));
  if (size > 1) plan.reduce(piece(Where::Out, count), half(size - 2));
  plan.end_step();
  return plan;
}

// In step s rank r passes on chunk r - s, which has arrived in the step before; at first its own.
Plan ring_all_gather(const Collective& c, int rank, int size) {
  const std::int64_t count = c.call.count;
  const int next = wrap(rank + 1, size), prev = wrap(rank - 1, size);
  const auto chunk = [&](int i) { return piece(Where::Out, count, wrap(i, size) * count); };
  Plan plan{.name = "ring all_gather"};
  for (int s = 0; s < size - 1; ++s) {
    plan.end_step();
    plan.send(next, s == 0 ? piece(Where::In, count) : chunk(rank - s));  // comm: S/p to the right
    plan.recv(prev, chunk(rank - s - 1));
  }
  plan.copy(chunk(rank), piece(Where::In, count));
  plan.end_step();
  return plan;
}

Plan tree_broadcast(const Collective& c, int rank, int size) {
  Plan plan{.name = "tree broadcast"};
  descend(plan, rank, c.call.peer, size, piece(Where::Out, c.call.count));
  return plan;
}

// `in` is not ours to write and only the root has `out`: inner ranks sum in scratch.
Plan tree_reduce(const Collective& c, int rank, int size) {
  const std::int64_t count = c.call.count;
  const int root = c.call.peer;
  const bool at_root = rank == root;
  const Piece arrived = piece(Where::Scratch, count);
  const Piece sum = at_root ? piece(Where::Out, count) : piece(Where::Scratch, count, count);
  Plan plan{.name = "tree reduce"};
  if (has_child(rank, root, size)) plan.scratch_count = at_root ? count : 2 * count;
  climb(plan, rank, root, size, piece(Where::In, count), sum, arrived);
  return plan;
}

Plan direct_broadcast(const Collective& c, int rank, int size) {
  const Piece all = piece(Where::Out, c.call.count);
  Plan plan{.name = "direct broadcast"};
  if (rank == c.call.peer) {
    for (int d = 1; d < size; ++d) plan.send(wrap(rank + d, size), all);  // comm: S to each rank
  } else {
    plan.recv(c.call.peer, all);
  }
  plan.end_step();
  return plan;
}

Plan direct_gather(const Collective& c, int rank, int size) {
  const std::int64_t count = c.call.count;
  const Piece mine = piece(Where::In, count);
  Plan plan{.name = "direct gather"};
  if (rank == c.call.peer) {
    for (int r = 0; r < size; ++r)
      if (r != rank) plan.recv(r, piece(Where::Out, count, r * count));
    plan.copy(piece(Where::Out, count, rank * count), mine);
  } else {
    plan.send(c.call.peer, mine);  // comm: S/p to the root
  }
  plan.end_step();
  return plan;
}

Plan direct_scatter(const Collective& c, int rank, int size) {
  const std::int64_t count = c.call.count;
  const Piece mine = piece(Where::Out, count);
  Plan plan{.name = "direct scatter"};
  if (rank == c.call.peer) {
    for (int r = 0; r < size; ++r)
      if (r != rank) plan.send(r, piece(Where::In, count, r * count));  // comm: S/p to each rank
    plan.copy(mine, piece(Where::In, count, rank * count));
  } else {
    plan.recv(c.call.peer, mine);
  }
  plan.end_step();
  return plan;
}

// In step s every rank sends to the s-th on its right and receives from the s-th on its left: each
// link carries one message at a time.
Plan pairwise_all_to_all(const Collective& c, int rank, int size) {
  const auto pieces_for = packed(Where::In, c.send_counts);
  const auto pieces_from = packed(Where::Out, c.recv_counts);
  Plan plan{.name = "pairwise all_to_all"};
  for (int s = 1; s < size; ++s) {
    plan.end_step();
    const int to = wrap(rank + s, size), from = wrap(rank - s, size);
    plan.send(to, of_rank(pieces_for, to));  // comm: S/p, or what the call says for that rank
    plan.recv(from, of_rank(pieces_from, from));
  }
  plan.copy(of_rank(pieces_from, rank), of_rank(pieces_for, rank));
  plan.end_step();
  return plan;
}

// After the step of distance d a rank knows of the 2d ranks up to itself that they have arrived.
Plan dissemination_barrier(const Collective& /*c*/, int rank, int size) {
  Plan plan{.name = "dissemination barrier"};
  for (int distance = 1; distance < size; distance *= 2) {
    plan.signal(wrap(rank + distance, size));  // comm: 0 bytes
    plan.await(wrap(rank - distance, size));
    plan.end_step();
  }
  return plan;
}

Plan tree_all_reduce(const Collective& c, int rank, int size) {
  const Piece all = piece(Where::Out, c.call.count);
  Plan plan{.name = "tree all_reduce"};
  if (has_child(rank, 0, size)) plan.scratch_count = c.call.count;
  if (size == 1) return plan;
  climb(plan, rank, 0, size, all, all, piece(Where::Scratch, c.call.count));
  descend(plan, rank, 0, size, all);
  return plan;
}

// Everyone sends its whole buffer to everyone; each adds all of them.
Plan direct_all_reduce(const Collective& c, int rank, int size) {
  const std::int64_t count = c.call.count;
  const Piece all = piece(Where::Out, count);
  const auto arrived = [&](int r) {  // one behind the other, without a place for this rank's own
    return piece(Where::Scratch, count, (r < rank ? r : r - 1) * count);
  };
  Plan plan{.name = "direct all_reduce", .scratch_count = (size - 1) * count};
  if (size == 1) return plan;
  swap_with_all(
      plan, rank, size, [&](int) { return all; }, arrived);
  add_in_order(plan, rank, size, all, all, arrived);
  return plan;
}

// `out` may be chunk r of `in`, which is read until the sum is complete.
Plan direct_reduce_scatter(const Collective& c, int rank, int size) {
  const std::int64_t count = c.call.count;
  const auto chunk = [&](int r) { return piece(Where::In, count, r * count); };
  const auto arrived = [&](int r) {
    return piece(Where::Scratch, count, (r < rank ? r : r - 1) * count);
  };
  Plan plan{.name = "direct reduce_scatter", .scratch_count = (size - 1) * count};
  swap_with_all(plan, rank, size, chunk, arrived);
  add_in_order(plan, rank, size, piece(Where::Out, count), chunk(rank), arrived);
  return plan;
}

Plan direct_all_gather(const Collective& c, int rank, int size) {
  const std::int64_t count = c.call.count;
  const Piece mine = piece(Where::In, count);
  const auto chunk = [&](int r) { return piece(Where::Out, count, r * count); };
  Plan plan{.name = "direct all_gather"};
  swap_with_all(
      plan, rank, size, [&](int) { return mine; }, chunk);
  plan.copy(chunk(rank), mine);
  plan.end_step();
  return plan;
}

Plan direct_all_to_all(const Collective& c, int rank, int size) {
  const auto pieces_for = packed(Where::In, c.send_counts);
  const auto pieces_from = packed(Where::Out, c.recv_counts);
  Plan plan{.name = "direct all_to_all"};
  swap_with_all(
      plan, rank, size, [&](int r) { return of_rank(pieces_for, r); },
      [&](int r) { return of_rank(pieces_from, r); });
  plan.copy(of_rank(pieces_from, rank), of_rank(pieces_for, rank));
  plan.end_step();
  return plan;
}

// Ranks that hold the sums of two neighbouring blocks swap them, and each then holds the sum of
// both: blocks of 1, 2, 4, ... ranks, of those that go on (fold.h).
//
// The lower block's sum is always the left operand, so that all ranks end with the same bits. So
// the sum of a rank with the upper block grows in what arrived: `mine` and `other` change places.
Plan recursive_doubling_all_reduce(const Collective& c, int rank, int size) {
  const Fold fold(rank, size);
  const Piece all = piece(Where::Out, c.call.count);
  Piece mine = all, other = piece(Where::Scratch, c.call.count);
  Plan plan{.name = "recursive doubling all_reduce"};
  if (!fold.goes_on) {
    plan.send(fold.partner, mine);  // comm: S to the neighbour, who goes on for both
    plan.end_step();
    plan.recv(fold.partner, mine);
    plan.end_step();
    return plan;
  }
  if (size > 1) plan.scratch_count = c.call.count;
  const auto add = [&](bool mine_is_lower) {
    if (!mine_is_lower) std::swap(mine, other);
    plan.reduce(mine, other);
  };
  if (fold.paired) {
    plan.recv(fold.partner, other);
    add(false);
  }
  for (int bit = 1; bit < fold.q; bit *= 2) {
    plan.end_step();
    const int partner = fold.rank_of(fold.v ^ bit);
    plan.send(partner, mine);  // comm: S, the sum of this block of ranks
    plan.recv(partner, other);
    add((fold.v & bit) == 0);
  }
  if (mine.where != all.where) plan.copy(all, mine);
  plan.end_step();
  if (fold.paired) plan.send(fold.partner, all);  // comm: S, the whole sum
  plan.end_step();
  return plan;
}

// Rank v, counted from the root, gets chunk v; then chunks travel round as in ring_all_gather, to
// all but the root, which has them.
Plan scatter_all_gather_broadcast(const Collective& c, int rank, int size) {
  const int v = wrap(rank - c.call.peer, size);
  const int next = wrap(rank + 1, size), prev = wrap(rank - 1, size);
  const auto chunk = [&](int i) { return chunk_of(Where::Out, c.call.count, wrap(i, size), size); };
  Plan plan{.name = "scatter all_gather broadcast"};
  for (int w = 1; w < size && v == 0; ++w)
    plan.send(wrap(rank + w, size), chunk(w));  // comm: S/p to each rank
  if (v != 0) plan.recv(c.call.peer, chunk(v));
  plan.end_step();
  for (int s = 0; s < size - 1; ++s) {
    if (v != size - 1) plan.send(next, chunk(v - s));  // comm: S/p to the right
    if (v != 0) plan.recv(prev, chunk(v - s - 1));
    plan.end_step();
  }
  return plan;
}

PlanTable default_plans() {
  PlanTable table;
  table[CommOp::AllReduce] = ring_all_reduce;
  table[CommOp::Reduce] = tree_reduce;
  table[CommOp::ReduceScatter] = ring_reduce_scatter;
  table[CommOp::AllGather] = ring_all_gather;
  table[CommOp::Gather] = direct_gather;
  table[CommOp::Scatter] = direct_scatter;
  table[CommOp::Broadcast] = tree_broadcast;
  table[CommOp::AllToAll] = pairwise_all_to_all;
  table[CommOp::AllToAllV] = pairwise_all_to_all;
  table[CommOp::Barrier] = dissemination_barrier;
  return table;
}

}  // namespace aisc
