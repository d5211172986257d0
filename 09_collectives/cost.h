// What an algorithm costs, before it runs; where two of them cost the same; and plans that are
// chosen by it.
#pragma once

#include "09_collectives/algorithms.h"

namespace aisc {

// By the algorithm's alpha-beta-gamma formula where the network is flat (its link and
// reduce_seconds_per_byte); on nodes, cards and wires, where messages get into each other's way,
// the seconds are those of simulate(), of as many bytes as it can cut evenly. The root, where there
// is one, is rank 0. Throws Error for ranks < 1 and bytes < 0.
Cost cost(const Algorithm& algorithm, int ranks, double bytes, const Network& network,
          const Tuning& tuning = {});

// A plan for every call, chosen (choose.h) by its number of ranks and bytes: for
// Communicator::use_plans() or LaunchOptions::plans. Choices are kept, so that a program that sums
// the same gradients in each step chooses once. all_to_all_v, whose counts differ between ranks, is
// left to the backend.
PlanTable chosen_plans(const Network& network);

// The fewest bytes, a positive multiple of `unit`, for which `second` takes no longer than `first`,
// each with its best tuning; the difference may change its sign once. -1 where that is not below
// `most`.
enum class By { Formula, Simulation };
std::int64_t crossover(const Algorithm& first, const Algorithm& second, int ranks,
                       const Network& network, std::int64_t unit, std::int64_t most,
                       By by = By::Formula);

}  // namespace aisc
