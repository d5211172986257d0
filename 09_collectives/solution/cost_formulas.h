// What the algorithms of the menu cost on a flat network, in the terms of algorithms.h: Cost. One
// rank alone sends nothing; where it copies its input to its output, that is a step.
#pragma once

#include "09_collectives/algorithms.h"

namespace aisc {

// ---- cost_lines.cpp: lines, binomial trees and common's direct plans

CostFormula naive_all_reduce_cost;

// common/comm/plan.h; of its ring_all_reduce: choose.h. The ring's all-gather costs what the
// pairwise all_to_all does, and the direct one what the direct all_to_all does.
CostFormula ring_reduce_scatter_cost, ring_all_gather_cost, tree_reduce_cost, tree_all_reduce_cost;
CostFormula dissemination_barrier_cost;
CostFormula direct_all_reduce_cost, direct_reduce_scatter_cost, direct_all_gather_cost;
CostFormula direct_broadcast_cost, direct_gather_cost, direct_scatter_cost;

// binomial.h; the broadcast's is that of common's tree_broadcast, too
CostFormula binomial_broadcast_cost, binomial_scatter_cost, binomial_gather_cost;
// broadcast.h
CostFormula chain_broadcast_cost, van_de_geijn_cost;

// ---- cost_logs.cpp: log2 p steps, and two levels; exact for every number of ranks

// halving.h
CostFormula recursive_halving_cost, recursive_doubling_all_gather_cost;
// bruck.h
CostFormula bruck_all_gather_cost, bruck_all_to_all_cost;
// two_level.h, by tuning.ranks_per_node. Throws Error where that is below 1.
CostFormula two_level_cost;

// ---- cost_trees.cpp: trees in pieces

// double_tree.h's formula, for any number of ranks and segments.
CostFormula double_tree_cost;

// The k >= 1 with the shortest time by that formula, the smaller one where several take the same;
// never more than `most`, nor than one per byte of a tree's half. From k = 2 on seconds are fixed +
// 2 k a + c / k, which is least at k = sqrt(c / 2 a); for p >= 4 ranks
//   k = sqrt((2 L - 3) n (b + g / 2) / (2 a)).
// Where a = 0: `most`. Throws Error for most < 1.
int best_double_tree_segments(int ranks, double bytes, const Network& network, int most = 1 << 20);

// in_network.h's formula, (k + 1) (a + n / k b), of the network's `link`. `ranks` counts the
// switch, as the plan does.
CostFormula in_network_cost;

}  // namespace aisc
