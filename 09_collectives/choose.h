// What the three classical all-reduces cost, formulas that one can write down in a minute each; and
// which algorithm to take. NCCL calls it tuning.
#pragma once

#include "09_collectives/algorithms.h"

namespace aisc {

// On a flat network; n = bytes, any number of ranks p >= 1 (one rank alone does nothing), tuning is
// not used. All fields of Cost, for n that every chunk divides. The formulas are those of ring.h
// and halving.h and, for recursive doubling (common/comm/plan.h), with L = floor(log2 p) and q =
// 2^L, at most p: L steps, L messages, L n bytes, L (a + n b + n g), all ranks together q L n.
// Where p > q one step, of n bytes, comes before and one after: p - q ranks give their buffer to
// their partner, who adds it, and in the end get the sum from it. No rank sends in both of them.
Cost ring_all_reduce_cost(int ranks, double bytes, const Network& network, const Tuning& tuning);
Cost recursive_doubling_all_reduce_cost(int ranks, double bytes, const Network& network,
                                        const Tuning& tuning);
// Rabenseifner's; where p > q folded as above, 2 L + 2 steps.
Cost rabenseifner_cost(int ranks, double bytes, const Network& network, const Tuning& tuning);

struct Choice {
  const Algorithm* algorithm = nullptr;
  Tuning tuning{};
  double seconds = 0;
};

// Of all algorithms of `op`, each with all its tunings, the one that takes least by cost(); of
// several that take the same, the first in algorithms(). Throws Error where there is none.
Choice choose(CommOp op, int ranks, double bytes, const Network& network);
Choice choose_all_reduce(int ranks, double bytes, const Network& network);

}  // namespace aisc
