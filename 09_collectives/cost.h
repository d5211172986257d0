// What an algorithm costs, before it runs; and which to take. NCCL calls it tuning.
#pragma once

#include "09_collectives/algorithms.h"

namespace aisc {

// alpha-beta-gamma formulas where the network is flat (its link; reduce_seconds_per_byte); on
// nodes, cards and wires, where messages get into each other's way, the seconds are those of
// simulate(). The root, where there is one, is rank 0. Throws Error for ranks < 1, bytes < 0.
Cost cost(const Algorithm& algorithm, int ranks, double bytes, const Network& network,
          const Tuning& tuning = {});

struct Choice {
  const Algorithm* algorithm = nullptr;
  Tuning tuning{};
  double seconds = 0;
};
// The all-reduce that takes least by cost(), with its best tuning; the first of algorithms() where
// several take the same.
Choice choose_all_reduce(int ranks, double bytes, const Network& network);

// A plan for every call, chosen by its size: what one gives to use_plans() or LaunchOptions::plans.
PlanTable chosen_plans(const Network& network);

}  // namespace aisc
