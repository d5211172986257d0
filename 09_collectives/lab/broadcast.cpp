// Yours to write; from 09_collectives/solution/broadcast.cpp (stub 40a0cd5af00d).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
// Broadcasts in pieces: a chain of segments, and scatter with all-gather.
#include "09_collectives/broadcast.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "09_collectives/binomial.h"
#include "common/core/error.h"

namespace aisc {

Plan chain_broadcast(const Collective& c, int rank, int size, int segments) {
  // LAB 09.6: long broadcasts
  // fail(...) for less than one segment. In which step does a rank in the middle receive segment
  // s, and in which does it send it? The first and the last rank do only half of that.
  throw NotImplemented("lab 09.6: long broadcasts", __FILE__, __LINE__);
  // END LAB 09.6
}

int best_segments(int ranks, double bytes, const Link& link, int most) {
  // LAB 09.6: long broadcasts
  // Short segments cost latency, long ones let the ranks behind wait. Where is the derivative of
  // the time 0? Neighbours of that in whole numbers; then the limits.
  throw NotImplemented("lab 09.6: long broadcasts", __FILE__, __LINE__);
  // END LAB 09.6
}

// Chunk w is v = w's. The chunks of a subtree lie side by side, so that Out is all the room that is
// needed; who has had some of its subtree's receives them again in the ring.
Plan van_de_geijn_broadcast(const Collective& c, int rank, int size) {
  const int root = c.call.peer, v = counted_from(root, rank, size);
  const auto begin = [&](int i) {  // of chunk `size`, too: the end of the last
    return chunk_of(Piece::Where::Out, c.call.count, i, size).begin;
  };
  const auto chunks = [&](int first, int end) {
    return Piece{.begin = begin(first), .count = begin(end) - begin(first)};
  };
  const auto subtree = [&](int w, int bit) { return chunks(w, std::min(w + bit, size)); };
  const auto chunk = [&](int i) { return subtree((i + size) % size, 1); };  // counted round
  // LAB 09.6: long broadcasts
  // chunk(i) and subtree(v, bit) above are pieces of Out. A scatter down the tree of 09.4, then
  // an all-gather on a ring: which ranks have some of what the ring would bring already?
  throw NotImplemented("lab 09.6: long broadcasts", __FILE__, __LINE__);
  // END LAB 09.6
}

}  // namespace aisc
