// Trees in which whoever has something gives it to one more rank in each step, so that after s
// steps 2^s ranks have it. v is the rank counted from the root, round; the parent of v is v without
// its lowest set bit, its children are v + 2^j for all 2^j below that bit.
#pragma once

#include "common/comm/plan.h"

namespace aisc {

// Ranks counted from the root, round, and back.
inline int counted_from(int root, int rank, int size) { return (rank - root + size) % size; }
inline int rank_of(int root, int v, int size) { return (root + v) % size; }

// L = ceil(log2 p). Every rank's steps are its own: who gets the message early sends more.

// Steps: root L. Bytes: root L n. Seconds: L (a + n b). The longest edges (largest 2^j) first.
Plan binomial_broadcast(const Collective& c, int rank, int size);

// A rank receives what is for itself and its subtree, v .. v + 2^j - 1 as far as there are ranks,
// and sends on what is for the subtrees of its children, the largest first. n is the root's buffer.
// Where v counts round (root > 0) a subtree's chunks may lie in two runs of the root's buffer: then
// they are packed into scratch, in the order of v, in a step before. Steps: root L, and that one
// where it packs. Bytes: root n (p - 1) / p. Seconds: L a + n (p - 1) / p b.
Plan binomial_scatter(const Collective& c, int rank, int size);

// The same backwards: from the smallest subtree to the largest. Steps: root L. Seconds: as scatter
// where p is a power of two; else what comes early over short edges saves latency (cost_lines.cpp).
Plan binomial_gather(const Collective& c, int rank, int size);

}  // namespace aisc
