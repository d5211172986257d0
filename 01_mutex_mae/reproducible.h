// The same bits for every number of threads: a tree of additions that depends on N alone (Demmel
// and Nguyen, "Parallel reproducible summation", 2015, treat the general case).
#pragma once

#include <span>

#include "01_mutex_mae/problem.h"
#include "01_mutex_mae/team.h"

namespace aisc {

// Samples of one leaf of the tree.
inline constexpr std::int64_t kLeaf = 256;

// Adds neighbours, values[0] + values[1], values[2] + values[3], ... (a last one without a
// neighbour stays), and again, until one is left. 0 if there is none. `values` is used up.
double tree_sum(std::span<double> values);

// Leaf k is the sum of errors kLeaf k .. kLeaf (k + 1) - 1 (the last may be shorter), from left to
// right in F64. The threads share the leaves; tree_sum adds them up. Bitwise equal for
// every team.
double mae_reproducible(const Problem& problem, Team& team);

}  // namespace aisc
