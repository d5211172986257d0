// The switch as one more rank: what it does in a step, and the cables that it hangs at.
#include "09_collectives/in_network.h"

#include <fmt/format.h>

#include "common/core/error.h"

namespace aisc {

// In step s segment s climbs to the switch, and the sum of segment s - 1 comes down. Rank 0's part
// arrives where the sum grows, the others' in scratch.
Plan in_network_all_reduce(const Collective& c, int rank, int size, int segments) {
  if (segments < 1)
    fail(fmt::format("in_network_all_reduce: {} segments, at least 1 expected", segments));
  if (size < 2)
    fail(fmt::format("in_network_all_reduce: {} ranks, at least 2 expected: the last is the switch",
                     size));
  using Where = Piece::Where;
  const auto segment = [&](int s) -> Piece {
    if (s < 0 || s >= segments) return {};
    return chunk_of(Where::Out, c.call.count, s, segments);
  };
  const int the_switch = size - 1;
  const std::int64_t longest = (c.call.count + segments - 1) / segments;
  Plan plan{.name = "in-network all_reduce"};
  if (rank == the_switch) plan.scratch_count = (the_switch - 1) * longest;
  for (int s = 0; s <= segments; ++s) {
    const Piece mine = segment(s), sum = segment(s - 1);
    if (rank != the_switch) {
      plan.send(the_switch, mine);  // comm: S/k to the switch, this rank's part
      plan.recv(the_switch, sum);
      plan.end_step();
      continue;
    }
    const auto piece_from = [&](int r) -> Piece {
      if (r == 0) return mine;
      return {.where = Where::Scratch, .begin = (r - 1) * longest, .count = mine.count};
    };
    for (int r = 0; r < the_switch; ++r) {
      plan.send(r, sum);  // comm: S/k to each rank, the sum
      plan.recv(r, piece_from(r));
    }
    for (int r = 1; r < the_switch; ++r) plan.reduce(mine, piece_from(r));
    plan.end_step();
  }
  return plan;
}

// Wire 2 r leads from rank r to the switch, wire 2 r + 1 back.
Network in_network(int ranks, const Link& link) {
  if (ranks < 1) fail(fmt::format("in_network: {} ranks, at least 1 expected", ranks));
  Network network{.link = link};
  network.wire_seconds_per_byte.assign(2 * static_cast<std::size_t>(ranks), link.seconds_per_byte);
  for (int from = 0; from <= ranks; ++from)
    for (int to = 0; to <= ranks; ++to) {
      Network::Route route{.latency_seconds = link.latency_seconds};
      if (from < ranks && from != to) route.wires.push_back(2 * from);
      if (to < ranks && from != to) route.wires.push_back(2 * to + 1);
      network.routes.push_back(route);
    }
  return network;
}

}  // namespace aisc
