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
  // > message_seconds is a + n b, adding_seconds n g (09_collectives/cost_parts.h).
  const double chunk = bytes / ranks;
  const int steps = 2 * (ranks - 1);
  return {.steps = steps,
          .messages = steps,
          .bytes = steps * chunk,
          .added_bytes = (ranks - 1) * chunk,
          .total_bytes = steps * bytes,
          .seconds = steps * message_seconds(network, chunk) +
                     adding_seconds(network, (ranks - 1) * chunk)};
  // END LAB 09.13
}

Cost recursive_doubling_all_reduce_cost(int ranks, double bytes, const Network& network,
                                        const Tuning&) {
  // LAB 09.13: choosing by cost
  // > Fold(0, ranks) knows q and the pairs; log2_down is L.
  // > Cost is about the rank that does most: which one of a folded pair is that?
  const Fold fold(0, ranks);
  const int L = log2_down(ranks), more = fold.pairs > 0 ? 1 : 0;
  const double added = (L + more) * bytes;
  return {
      .steps = L + 2 * more,
      .messages = L + more,
      .bytes = (L + more) * bytes,
      .added_bytes = added,
      .total_bytes = (2 * fold.pairs + fold.q * L) * bytes,
      .seconds = (L + 2 * more) * message_seconds(network, bytes) + adding_seconds(network, added)};
  // END LAB 09.13
}

Cost rabenseifner_cost(int ranks, double bytes, const Network& network, const Tuning&) {
  // LAB 09.13: choosing by cost
  // > halving.h has its steps. What does a step of folded pairs add to each number?
  const Fold fold(0, ranks);
  const int L = log2_down(ranks), more = fold.pairs > 0 ? 1 : 0;
  const double half = bytes / fold.q * (fold.q - 1);  // n/2 + n/4 + ...
  return {.steps = 2 * L + 2 * more,
          .messages = 2 * L + more,
          .bytes = 2 * half + more * bytes,
          .added_bytes = half + more * bytes,
          .total_bytes = 2 * (ranks - 1) * bytes,
          .seconds = 2 * L * message_seconds(network, 0) +
                     2 * half * network.link.seconds_per_byte +
                     2 * more * message_seconds(network, bytes) +
                     adding_seconds(network, half + more * bytes)};
  // END LAB 09.13
}

Choice choose(CommOp op, int ranks, double bytes, const Network& network) {
  // LAB 09.13: choosing by cost
  // > algorithms() has all of them, of all operations; tunings() says what to try with each.
  Choice best{.seconds = std::numeric_limits<double>::infinity()};
  for (const Algorithm& candidate : algorithms()) {
    if (candidate.op != op) continue;
    for (const Tuning& tuning : candidate.tunings(ranks, bytes, network)) {
      const double seconds = cost(candidate, ranks, bytes, network, tuning).seconds;
      if (seconds < best.seconds) best = {&candidate, tuning, seconds};
    }
  }
  if (!best.algorithm) fail(fmt::format("choose: there is no algorithm of {}", name_of(op)));
  return best;
  // END LAB 09.13
}

Choice choose_all_reduce(int ranks, double bytes, const Network& network) {
  return choose(CommOp::AllReduce, ranks, bytes, network);
}

}  // namespace aisc
