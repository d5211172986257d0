// Yours to write; from 11_gpt_3d/solution/slow_bytes.cpp (stub 25ec128cd4e5).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
#include "11_gpt_3d/slow_bytes.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/core/error.h"

namespace aisc {

std::int64_t bytes_between_nodes(const MeshShape& shape, const MeshOrder& order, int ranks_per_node,
                                 const StepBytes& bytes) {
  if (ranks_per_node < 1)
    fail(fmt::format("nodes of {} ranks, expected 1 or more", ranks_per_node));
  // LAB 11.4: bytes between nodes
  // groups_of() has the ranks that talk. Which rank of a group sends to which, and how much?
  // Which of these pairs lie in different nodes?
  throw NotImplemented("lab 11.4: bytes between nodes", __FILE__, __LINE__);
  // END LAB 11.4
}

MeshOrder best_order(const MeshShape& shape, int ranks_per_node, const StepBytes& bytes) {
  // LAB 11.4: bytes between nodes
  // There are six. Of equal ones the first.
  throw NotImplemented("lab 11.4: bytes between nodes", __FILE__, __LINE__);
  // END LAB 11.4
}

}  // namespace aisc
