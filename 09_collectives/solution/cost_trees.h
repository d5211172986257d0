// What trees in pieces cost: the pair of trees, and the sum in the switch.
#pragma once

#include "09_collectives/algorithms.h"

namespace aisc {

// As Algorithm::cost. double_tree.h's formula, for any number of ranks and segments.
Cost double_tree_cost(int ranks, double bytes, const Network& network, const Tuning& tuning);

// The k >= 1 with the shortest time by that formula, the smaller one where several take the same;
// never more than `most`, nor than one per byte of a tree's half. From k = 2 on seconds are fixed +
// 2 k a + c / k, which is least at k = sqrt(c / 2 a); for p >= 4 ranks
//   k = sqrt((2 L - 3) n (b + g / 2) / (2 a)).
// Where a = 0: `most`. Throws Error for most < 1.
int best_double_tree_segments(int ranks, double bytes, const Network& network, int most = 1 << 20);

// in_network.h's formula, (k + 1) (a + n / k b), of the network's `link`. `ranks` counts the
// switch, as the plan does.
Cost in_network_cost(int ranks, double bytes, const Network& network, const Tuning& tuning);

}  // namespace aisc
