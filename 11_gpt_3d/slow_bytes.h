// What the order of a mesh costs between nodes.
#pragma once

#include <cstdint>

#include "11_gpt_3d/placement.h"

namespace aisc {

// Bytes that one rank sends in a step. In tp and dp collectives run on rings: all of a rank's bytes
// go to the next rank of its group, and from the last to the first. Along a pipeline `forward` goes
// to the next stage and `backward` to the one before, from each rank that has such a neighbour; no
// ring. `tables` goes between the first and the last stage, in both directions, each way once
// (0: the table is on one stage).
struct StepBytes {
  std::int64_t tp = 0, dp = 0, forward = 0, backward = 0, tables = 0;
};

// Of all ranks together, the bytes that leave their node: nodes have `ranks_per_node` ranks that
// follow one another, the last one may have fewer. By hand: 4 ranks in nodes of 2, tp 2, dp 2, 100
// bytes a rank in tp and 10 in dp. In the order tp, dp the groups of tp are nodes: 4 * 10 = 40. In
// the order dp, tp: 400. Throws Error if ranks_per_node is below 1.
std::int64_t bytes_between_nodes(const MeshShape& shape, const MeshOrder& order, int ranks_per_node,
                                 const StepBytes& bytes);

// The order with the fewest; of equal ones the first of all_orders().
MeshOrder best_order(const MeshShape& shape, int ranks_per_node, const StepBytes& bytes);

}  // namespace aisc
