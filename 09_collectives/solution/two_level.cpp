// Reduce-scatter in the node, a ring between nodes for each chunk, all-gather in the node.
#include "09_collectives/two_level.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "09_collectives/compose.h"
#include "common/core/error.h"

namespace aisc {
namespace {

using Where = Piece::Where;

// Node k: ranks first .. first + ranks - 1.
struct Node {
  Node(int k, int size, int ranks_per_node)
      : first(k * ranks_per_node), ranks(std::min(ranks_per_node, size - first)) {}
  int first, ranks;
  int owner(int chunk) const { return first + chunk % ranks; }
};

}  // namespace

Plan two_level_all_reduce(const Collective& c, int rank, int size, int ranks_per_node) {
  // LAB 09.12: two levels
  // > ring_all_reduce (common/comm/plan.h) over m ranks, numbered by node; then its peers and its
  // > pieces are put where they belong (compose.h: moved), and several of them side by side.
  const int g = ranks_per_node;
  if (g < 1) fail(fmt::format("two level all_reduce: ranks_per_node {}, at least 1 expected", g));
  const std::int64_t count = c.call.count, longest = (count + g - 1) / g;
  const int nodes = (size + g - 1) / g;
  const Node node(rank / g, size, g);
  const int h = node.ranks, me = rank - node.first;
  const auto chunk = [&](int i) { return chunk_of(Where::Out, count, i, g); };
  const int mine = (g + h - 1) / h;      // chunks that belong to me, at most
  const auto part = [&](int l, int i) {  // of chunk i, one of mine: what rank l of the node has
    return Piece{Where::Scratch, (l * mine + i / h) * longest, chunk(i).count};
  };
  Plan plan{.name = "two level all_reduce"};
  if (h > 1) plan.scratch_count = h * mine * longest;

  for (int s = 1; s < h; ++s) {
    const int to = (me + s) % h, from = (me - s + h) % h;
    for (int i = to; i < g; i += h)
      plan.send(node.first + to, chunk(i));  // comm: n/g in the node, to the chunk's owner
    for (int i = me; i < g; i += h) plan.recv(node.first + from, part(from, i));
  }
  for (int i = me; i < g && h > 1; i += h) {
    plan.copy(part(me, i), chunk(i));
    for (int l = 1; l < h; ++l) plan.reduce(part(0, i), part(l, i));
    plan.copy(chunk(i), part(0, i));
  }

  std::vector<Plan> rings;
  for (int i = me; i < g; i += h) {
    Collective of_chunk{.call = c.call};
    of_chunk.call.count = chunk(i).count;
    Plan ring = moved(ring_all_reduce(of_chunk, rank / g, nodes), chunk(i).begin);
    for (PlanAction& action : ring.actions)
      if (action.peer >= 0) action.peer = Node(action.peer, size, g).owner(i);
    rings.push_back(std::move(ring));
  }
  append(plan, side_by_side(plan.name, rings));

  for (int s = 1; s < h; ++s) {
    const int to = (me + s) % h, from = (me - s + h) % h;
    for (int i = me; i < g; i += h)
      plan.send(node.first + to, chunk(i));  // comm: n/g in the node, the sum over all nodes
    for (int i = from; i < g; i += h) plan.recv(node.first + from, chunk(i));
  }
  plan.end_step();
  return plan;
  // END LAB 09.12
}

}  // namespace aisc
