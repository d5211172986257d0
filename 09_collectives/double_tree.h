// Two binary trees, each of which carries half of the buffer. Whoever is an inner node of one, and
// has children to listen to, is a leaf of the other, so that all links carry as much. Sanders,
// Speck, Träff 2009; NCCL since 2.4.
#pragma once

#include <array>
#include <vector>

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

// An edge as one of its two ranks sees it, and when messages pass it.
struct TreeEdge {
  int tree = 0;   // 0: the first
  int peer = -1;  // at the other end
  int round = 0;  // of the way up: segment s passes in round `round` + s
};
// A rank's edges in both trees, at most two each: up to its parents and down to its children.
// Given, but made with the two functions above.
//
// The way up has L + k - 1 rounds, L = ceil(log2 n), k segments. In round h - 1 + s a rank above h
// levels of others hears segment s from its children, both at once. The way down is the way up
// backwards: there segment s passes an edge in round L - 1 - `round` + s.
//
// In a round a rank sends to its two parents, one message after the other, and hears from two
// children. Did both send theirs to it as their second, its link would have nothing to do at first
// and too much after: every such round would take a + 3 m b for segments of m bytes. So edges have
// turns, 0 and 1, such that a rank's two edges up differ in theirs, and so do its two edges down
// (Sanders et al.: colours). `up` and `down` list turn 0 first. Upwards both sides take that order,
// downwards, which is backwards, the opposite one. Then a round takes a + 2 m b, the way down is as
// long as the way up, for every n, and two messages of a round between the same two ranks, as there
// are with three ranks from 2 to 0, match.
struct TreeEdges {
  std::vector<TreeEdge> up, down;
};
TreeEdges tree_edges(int rank, int size);

// Elements chunk_of(Out, n, 0, 2) go through the first tree, chunk_of(Out, n, 1, 2) through the
// second; each half in `segments` pieces, chunk_of of the half. First all sums go up to the roots,
// then all results down, in the rounds of TreeEdges, each of which is a step where the rank has
// something to do in it. What arrives is added to the rank's own. Throws
// Error for segments < 1. With p >= 4 ranks, n bytes in all, and m = n / (2 k) of one segment:
//
// Rounds: 2 (L + k - 1). Bytes: 2 n, of the ranks with two children. Seconds, with R = L + k - 1:
//   2 R a + (4 R - 2) m b + (2 R - 1) m g
// for every p and k (k = 1 and p = 2^i + 1: 2 m b + m g less); about 2 (L + k) a + 2 n b + n g with
// many segments. cost_trees.cpp has fewer ranks, too, and the best k.
Plan double_tree_all_reduce(const Collective& c, int rank, int size, int segments);

}  // namespace aisc
