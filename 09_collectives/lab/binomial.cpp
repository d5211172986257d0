// Yours to write; from 09_collectives/solution/binomial.cpp (stub 9778bc542545).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
// Binomial trees: a buffer to all, its chunks to each, and the chunks of all to one.
#include "09_collectives/binomial.h"

#include <algorithm>

#include "common/core/error.h"

namespace aisc {
namespace {

using Where = Piece::Where;

// v's subtree is v .. v + subtree_size - 1: as many as v's lowest set bit says, as far as there are
// ranks; of the root all.
int subtree_size(int v, int size) { return v == 0 ? size : std::min(v & -v, size - v); }

// Where a rank keeps the chunks of its subtree. A leaf, which has its own alone, keeps it where the
// call has it; other ranks keep them in scratch, in the order of v. The root has all in its buffer,
// in the order of the ranks: there one child's subtree may begin at the end and go on at the front,
// and is packed into scratch.
struct Chunks {
  const std::int64_t count;  // elements of a chunk
  const int root, v, size;
  const Where buffer;  // of the root
  const Where own;     // where the call has this rank's chunk

  bool is_leaf() const { return subtree_size(v, size) == 1; }
  bool is_split(int child) const {
    return v == 0 && rank_of(root, child, size) + subtree_size(child, size) > size;
  }
  int split_child() const {  // 0: none
    int child = 1;
    while (child < size && !is_split(child)) child *= 2;
    return v == 0 && child < size ? child : 0;
  }
  std::int64_t scratch_count() const {
    if (v == 0) return split_child() == 0 ? 0 : subtree_size(split_child(), size) * count;
    return is_leaf() ? 0 : subtree_size(v, size) * count;
  }

  Piece alone() const { return run(own, 0, 1); }  // this rank's, of the call
  Piece mine() const {                            // this rank's, among those of its subtree
    if (v == 0) return run(buffer, root, 1);
    return is_leaf() ? alone() : run(Where::Scratch, 0, 1);
  }
  // All of the subtree of w, which is v or one of its children.
  Piece of_subtree(int w) const {
    const int ranks = subtree_size(w, size);
    if (v == 0 && !is_split(w)) return run(buffer, rank_of(root, w, size), ranks);
    return is_leaf() ? alone() : run(Where::Scratch, v == 0 ? 0 : w - v, ranks);
  }

  // What is split, from the root's buffer into scratch, in a step of its own; and back.
  void pack(Plan& plan) const {
    for_split([&](const Piece& packed, const Piece& at_root) { plan.copy(packed, at_root); });
    plan.end_step();
  }
  void unpack(Plan& plan) const {
    for_split([&](const Piece& packed, const Piece& at_root) { plan.copy(at_root, packed); });
  }

 private:
  Piece run(Where where, int first, int chunks) const {
    return {.where = where, .begin = first * count, .count = chunks * count};
  }
  template <class Copy>
  void for_split(Copy copy) const {
    const int child = split_child(), ranks = child == 0 ? 0 : subtree_size(child, size);
    for (int k = 0; k < ranks; ++k)
      copy(run(Where::Scratch, k, 1), run(buffer, rank_of(root, child + k, size), 1));
  }
};

}  // namespace

Plan binomial_broadcast(const Collective& c, int rank, int size) {
  // LAB 09.4: binomial_broadcast
  // Of v = 0b0110, which bit tells the parent, and which the children? What of v = 0? A rank may
  // send only what an earlier step has brought. The root is c.call.peer; counted_from gives a
  // rank's v, rank_of the way back.
  throw NotImplemented("lab 09.4: binomial_broadcast", __FILE__, __LINE__);
  // END LAB 09.4
}

Plan binomial_scatter(const Collective& c, int rank, int size) {
  // LAB 09.5: binomial_scatter
  // Who sends to whom is as in 09.4. Which memory that is, `Chunks` says, made of c.call.count,
  // root, v, size, Where::In and Where::Out. The root packs first (pack ends a step if there is
  // anything to pack). Everyone's own chunk has to come to Out: chunks.alone().
  throw NotImplemented("lab 09.5: binomial_scatter", __FILE__, __LINE__);
  // END LAB 09.5
}

Plan binomial_gather(const Collective& c, int rank, int size) {
  const int root = c.call.peer, v = counted_from(root, rank, size);
  const Chunks chunks{c.call.count, root, v, size, Where::Out, Where::In};
  Plan plan{.name = "binomial gather", .scratch_count = chunks.scratch_count()};
  if (v == 0 || !chunks.is_leaf()) plan.copy(chunks.mine(), chunks.alone());
  for (int bit = 1; bit < size && (v & bit) == 0; bit *= 2) {
    if (v + bit >= size) break;
    plan.recv(rank_of(root, v + bit, size), chunks.of_subtree(v + bit));
    if (chunks.is_split(bit)) chunks.unpack(plan);
    plan.end_step();
  }
  plan.end_step();  // one rank alone only copies
  if (v != 0)
    plan.send(rank_of(root, v - (v & -v), size), chunks.of_subtree(v));  // comm: its subtree's
  plan.end_step();
  return plan;
}

}  // namespace aisc
