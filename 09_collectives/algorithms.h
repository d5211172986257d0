// The menu: every algorithm of every collective by name, what it costs, and how to make it.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "common/comm/network.h"
#include "common/comm/plan.h"

namespace aisc {

// What some algorithms have to be told.
struct Tuning {
  int segments = 1;        // chain, double tree
  int ranks_per_node = 1;  // two level
  bool operator==(const Tuning&) const = default;
};

// p ranks, n bytes of a rank's largest buffer, on a flat network. Formulas take n as divisible by
// everything that it is divided by (ranks, segments); then everything is exact.
struct Cost {
  std::int64_t steps = 0;     // of the rank that has most
  std::int64_t messages = 0;  // sent by the rank that sends most
  double bytes = 0;           // likewise
  double added_bytes = 0;     // by the rank that adds most
  double total_bytes = 0;     // sent by all ranks together; exact for every n
  double seconds = 0;         // until the last rank is done; all begin at 0
};

using CostFormula = Cost(int ranks, double bytes, const Network& network, const Tuning& tuning);

struct Algorithm {
  std::string_view name;  // "ring"
  CommOp op;
  Plan (*plan)(const Collective& c, int rank, int size, const Tuning& tuning);
  CostFormula* cost;
  // The tunings worth trying; none where the algorithm makes no sense (two levels without nodes,
  // p - 1 messages at once for p > 8).
  std::vector<Tuning> (*tunings)(int ranks, double bytes, const Network& network);
};

// All of them, by operation. Those that common/ has too are common's.
std::span<const Algorithm> algorithms();
// Throws Error with the names that there are.
const Algorithm& algorithm(CommOp op, std::string_view name);
PlanMaker plan_maker(const Algorithm& algorithm, const Tuning& tuning = {});

}  // namespace aisc
