// Yours to write; from 09_collectives/solution/rails.cpp (stub d2474098a841).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
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
  // Which chunks of `in` are for rank l of any node? In which order must they leave the node, so
  // that g of them in one message are a run of `out`?
  throw NotImplemented("lab 09.14: rails", __FILE__, __LINE__);
  // END LAB 09.14
}

}  // namespace aisc
