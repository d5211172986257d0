// The time of a collective without ranks: all plans are followed by one thread, which moves no data
// and counts time by the rules of network.h, as the communicator does in virtual time. Tens of
// thousands of ranks, and to the last bit the same result.
#pragma once

#include <functional>
#include <vector>

#include "common/comm/network.h"
#include "common/comm/plan.h"

namespace aisc {

struct Simulated {
  double seconds = 0;               // until the last rank is done
  std::vector<double> end_seconds;  // of each rank
  std::int64_t messages = 0;        // of all ranks
  std::int64_t bytes = 0;
};

// A message as it went: for figures.
struct SimulatedMessage {
  int from, to;
  std::int64_t bytes;
  double sent_seconds, arrived_seconds;
};

// What one collective leaves to the next on the same communicator: when each rank begins (then: is
// over), and when links and wires are free. `network` is kept.
struct SimulationState {
  SimulationState(const Network& network, int ranks);
  std::vector<double> seconds;
  std::vector<RankLinks> links;
  SharedWires wires;
};

// All ranks of `maker` begin `call` at 0, or as `state` has it; call's peer and counts are the same
// on all. Throws Error naming ranks that wait for ever, and where two sides of a message disagree.
Simulated simulate(const PlanMaker& maker, const Collective& call, int ranks,
                   const Network& network,
                   const std::function<void(const SimulatedMessage&)>& message = {},
                   SimulationState* state = nullptr);

// The call of `bytes` bytes in a rank's largest buffer, F32, with root 0.
// Throws Error where the operation needs equal parts and the elements do not divide by the ranks.
Collective call_of(CommOp op, int ranks, std::int64_t bytes);

}  // namespace aisc
