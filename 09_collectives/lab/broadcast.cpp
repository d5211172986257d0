// Yours to write; from 09_collectives/solution/broadcast.cpp (stub 3f7674b53552).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
// Broadcasts in pieces: a chain of segments, and scatter with all-gather.
#include "09_collectives/broadcast.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "common/core/error.h"

namespace aisc {
namespace {

// Ranks counted from the root, round, and back.
int counted_from(int root, int rank, int size) { return (rank - root + size) % size; }
int rank_of(int root, int v, int size) { return (root + v) % size; }

}  // namespace

Plan chain_broadcast(const Collective& c, int rank, int size, int segments) {
  // LAB 09.6: chain of segments
  // fail(...) for less than one segment. In which step does a rank in the middle receive segment
  // s, and in which does it send it? The first and the last rank do only half of that.
  throw NotImplemented("lab 09.6: chain of segments", __FILE__, __LINE__);
  // END LAB 09.6
}

int best_segments(int ranks, double bytes, const Link& link, int most) {
  // LAB 09.6: chain of segments
  // Short segments cost latency, long ones let the ranks behind wait. Where is the derivative of
  // the time 0? Neighbours of that in whole numbers; then the limits.
  throw NotImplemented("lab 09.6: chain of segments", __FILE__, __LINE__);
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
  Plan plan{.name = "van de Geijn broadcast"};
  int bit = 1;
  while (bit < size && (v & bit) == 0) bit *= 2;
  if (v != 0) plan.recv(rank_of(root, v - bit, size), subtree(v, bit));
  plan.end_step();
  for (bit /= 2; bit > 0; bit /= 2) {
    if (v + bit < size)
      plan.send(rank_of(root, v + bit, size), subtree(v + bit, bit));  // comm: its subtree's
    plan.end_step();
  }
  for (int s = 0; s < size - 1; ++s) {
    if (v != size - 1) plan.send(rank_of(root, v + 1, size), chunk(v - s));  // comm: n/p round
    if (v != 0) plan.recv(rank_of(root, v - 1, size), chunk(v - s - 1));
    plan.end_step();
  }
  return plan;
}

}  // namespace aisc
