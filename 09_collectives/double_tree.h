// Two binary trees, each of which carries half of the buffer. Whoever is an inner node of one, and
// has children to listen to, is a leaf of the other, so that all links carry as much. Sanders,
// Speck, Träff 2009; NCCL since 2.4.
#pragma once

#include <array>

#include "common/comm/plan.h"

namespace aisc {

// A rank's place in one tree. -1: none.
struct TreeNode {
  int parent = -1;
  std::array<int, 2> children{-1, -1};  // the smaller rank first; one child alone stands first
  bool operator==(const TreeNode&) const = default;
};

// The first tree. With bit the lowest set bit of r the parent of r > 0 is (r ^ bit) | (bit << 1),
// or r ^ bit where that is not below n; rank 0 is the root, with one child, the highest power of
// two below n. So r = 0b0110 has the parent 0b0100, and every inner node but the root the two
// children r - bit/2 and r + bit/2, the latter or, where there is no such rank, whichever has r as
// its parent.
TreeNode first_tree(int rank, int size);
// The second. Even n: the mirror image, r -> n - 1 - r. Odd n: the first one turned by one, rank r
// stands where rank r - 1 (counted round) stands in the first.
TreeNode second_tree(int rank, int size);

// Elements chunk_of(Out, n, 0, 2) go through the first tree, chunk_of(Out, n, 1, 2) through the
// second; each half in `segments` pieces, sums up to the root and results down again, while the
// next segments follow. Steps, bytes and seconds: cost.h. Throws Error for segments < 1.
Plan double_tree_all_reduce(const Collective& c, int rank, int size, int segments);

}  // namespace aisc
