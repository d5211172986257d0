// An algorithm with what it is told, as one word: for flags and tables.
#pragma once

#include <string>

#include "09_collectives/algorithms.h"

namespace aisc {

struct NamedAlgorithm {
  const Algorithm* algorithm = nullptr;
  Tuning tuning{};
  // Of all_reduce and broadcast: the buffer is cut into so many parts, chunk_of(Out, n, i, parts),
  // and the algorithm runs on one after the other. In our model that only costs latency; on a
  // machine short parts stay in the cache from step to step.
  int parts = 1;
};

// "ring", "double_tree/segments=16", "two_level/ranks_per_node=2", "ring/parts=8": what is not 1 is
// said.
std::string name_of(const NamedAlgorithm& named);

// What such a word says. Throws Error where algorithm() does, and naming what makes no sense.
NamedAlgorithm algorithm_named(CommOp op, const std::string& name);

// Its plans.
PlanMaker plan_named(CommOp op, const std::string& name);

}  // namespace aisc
