// Yours to write; from 01_mutex_mae/solution/metropolis.cpp (stub f124d2719468).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
// Steps follow one another and are not for threads to share; the MAE of each proposal is. What is
// random is a function of (seed, step): no thread's part in it, and nothing to keep in order.
#include "01_mutex_mae/metropolis.h"

#include <cmath>

#include "01_mutex_mae/reproducible.h"
#include "common/core/error.h"
#include "common/core/rng.h"

namespace aisc {

Chain metropolis(const Problem& problem, Team& team, const ChainOptions& options) {
  // LAB 01.12: metropolis
  // Where the chain stands is chain.w and its loss; a copy of the problem takes the proposals.
  throw NotImplemented("lab 01.12: metropolis", __FILE__, __LINE__);
  // END LAB 01.12
}

}  // namespace aisc
