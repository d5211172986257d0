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
  // > fail(...) for less than one segment. In which step does a rank in the middle receive segment
  // > s, and in which does it send it? The first and the last rank do only half of that.
  const int root = c.call.peer, v = counted_from(root, rank, size);
  if (segments < 1)
    fail(fmt::format("chain_broadcast: {} segments, at least 1 expected", segments));
  const auto segment = [&](int s) {
    return chunk_of(Piece::Where::Out, c.call.count, s, segments);
  };
  Plan plan{.name = "chain broadcast"};
  for (int s = 0; s <= segments; ++s) {
    if (v > 0 && s < segments) plan.recv(rank_of(root, v - 1, size), segment(s));
    if (v < size - 1 && s > 0)
      plan.send(rank_of(root, v + 1, size), segment(s - 1));  // comm: n/k, the one before
    plan.end_step();
  }
  return plan;
  // END LAB 09.6
}

int best_segments(int ranks, double bytes, const Link& link, int most) {
  // LAB 09.6: long broadcasts
  // > Short segments cost latency, long ones let the ranks behind wait. Where is the derivative of
  // > the time 0? Neighbours of that in whole numbers; then the limits.
  const double others = ranks - 2;
  const double byte_seconds = link.seconds_per_byte, latency = link.latency_seconds;
  if (others < 1 || bytes * byte_seconds == 0) return 1;
  const double limit = std::max(1.0, std::floor(std::min<double>(most, bytes)));
  if (latency == 0) return static_cast<int>(limit);
  const auto seconds = [&](double k) {
    return (others + k) * (latency + bytes / k * byte_seconds);
  };
  const double ideal = std::floor(std::sqrt(others * bytes * byte_seconds / latency));
  const double low = std::clamp(ideal, 1.0, limit), high = std::min(low + 1, limit);
  return static_cast<int>(seconds(high) < seconds(low) ? high : low);
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
  // > chunk(i) and subtree(v, bit) above are pieces of Out. A scatter down the tree of 09.4, then
  // > an all-gather on a ring: which ranks have some of what the ring would bring already?
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
  // END LAB 09.6
}

}  // namespace aisc
