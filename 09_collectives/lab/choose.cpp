// Yours to write; from 09_collectives/solution/choose.cpp (stub 9b4adaa1c1a5).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
#include "09_collectives/choose.h"

#include <fmt/format.h>

#include <limits>

#include "09_collectives/cost.h"
#include "09_collectives/cost_parts.h"
#include "common/comm/fold.h"
#include "common/core/error.h"

namespace aisc {

Cost ring_all_reduce_cost(int ranks, double bytes, const Network& network, const Tuning&) {
  // LAB 09.13: choosing by cost
  // message_seconds is a + n b, adding_seconds n g (09_collectives/cost_parts.h).
  throw NotImplemented("lab 09.13: choosing by cost", __FILE__, __LINE__);
  // END LAB 09.13
}

Cost recursive_doubling_all_reduce_cost(int ranks, double bytes, const Network& network,
                                        const Tuning&) {
  // LAB 09.13: choosing by cost
  // Fold(0, ranks) knows q and the pairs; log2_down is L.
  // Cost is about the rank that does most: which one of a folded pair is that?
  throw NotImplemented("lab 09.13: choosing by cost", __FILE__, __LINE__);
  // END LAB 09.13
}

Cost rabenseifner_cost(int ranks, double bytes, const Network& network, const Tuning&) {
  // LAB 09.13: choosing by cost
  // halving.h has its steps. What does a step of folded pairs add to each number?
  throw NotImplemented("lab 09.13: choosing by cost", __FILE__, __LINE__);
  // END LAB 09.13
}

Choice choose(CommOp op, int ranks, double bytes, const Network& network) {
  // LAB 09.13: choosing by cost
  // algorithms() has all of them, of all operations; tunings() says what to try with each.
  throw NotImplemented("lab 09.13: choosing by cost", __FILE__, __LINE__);
  // END LAB 09.13
}

Choice choose_all_reduce(int ranks, double bytes, const Network& network) {
  return choose(CommOp::AllReduce, ranks, bytes, network);
}

}  // namespace aisc
