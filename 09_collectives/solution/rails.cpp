// All-to-all in two phases: to the right GPU in the own node, then along the rail to the right
// node.
#include "09_collectives/rails.h"

#include <fmt/format.h>

#include "common/core/error.h"

namespace aisc {
namespace {

using Where = Piece::Where;

}  // namespace

Plan rail_all_to_all(const Collective& c, int rank, int size, int ranks_per_node) {
  // LAB 09.14: rails
  // > Which chunks of `in` are for rank l of any node? In which order must they leave the node, so
  // > that g of them in one message are a run of `out`?
  const int g = ranks_per_node;
  if (g < 1) fail(fmt::format("rail all_to_all: ranks_per_node {}, at least 1 expected", g));
  if (size % g != 0)
    fail(fmt::format("rail all_to_all: {} ranks, a multiple of ranks_per_node {} expected", size,
                     g));
  if (c.call.op == CommOp::AllToAllV)
    fail("rail all_to_all: the call is an all_to_all_v, equal counts expected");
  const int m = size / g, node = rank / g, rail = rank % g;
  const auto chunks = [&](Where where, int begin, int n) {
    return Piece{.where = where, .begin = begin * c.call.count, .count = n * c.call.count};
  };
  const auto packed = [&](int begin, int n) { return chunks(Where::Scratch, begin, n); };
  const auto arrived = [&](int begin, int n) { return chunks(Where::Scratch, size + begin, n); };
  Plan plan{.name = "rail all_to_all", .scratch_count = 2 * size * c.call.count};

  for (int l = 0; l < g; ++l)  // by the rail that they are for
    for (int k = 0; k < m; ++k) plan.copy(packed(l * m + k, 1), chunks(Where::In, k * g + l, 1));
  for (int s = 1; s < g; ++s) {
    plan.end_step();
    const int to = (rail + s) % g, from = (rail - s + g) % g;
    plan.send(node * g + to, packed(to * m, m));  // comm: n/g in the node, for rail `to`
    plan.recv(node * g + from, arrived(from * m, m));
  }
  plan.copy(arrived(rail * m, m), packed(rail * m, m));

  for (int k = 0; k < m; ++k)  // by the node that they are for
    for (int l = 0; l < g; ++l) plan.copy(packed(k * g + l, 1), arrived(l * m + k, 1));
  for (int s = 1; s < m; ++s) {
    plan.end_step();
    const int to = (node + s) % m, from = (node - s + m) % m;
    plan.send(to * g + rail, packed(to * g, g));  // comm: n/m along the rail, of the whole node
    plan.recv(from * g + rail, chunks(Where::Out, from * g, g));
  }
  plan.copy(chunks(Where::Out, node * g, g), packed(node * g, g));
  plan.end_step();
  return plan;
  // END LAB 09.14
}

}  // namespace aisc
