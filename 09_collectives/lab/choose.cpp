// Yours to write; from 09_collectives/solution/choose.cpp (stub 042dd95f645b).
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
  // Of a pair, the rank that goes on sends in every step but the first and receives in every
  // step but the last; it adds most.
  throw NotImplemented("lab 09.13: choosing by cost", __FILE__, __LINE__);
  // END LAB 09.13
}

Cost rabenseifner_cost(int ranks, double bytes, const Network& network, const Tuning&) {
  // LAB 09.13: choosing by cost
  // n/2 + n/4 + ... over L steps, twice; and where pairs fold, n before and n after.
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
