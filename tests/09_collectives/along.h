// An all-reduce along several rings, made of common's ring: what tests of given code use, so that
// they need no exercise.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "09_collectives/compose.h"

namespace aisc {

// Ring k of m carries chunk k of m. common's ring passes from rank to rank; here position i of an
// order stands for rank i.
inline PlanMaker along(std::vector<std::vector<int>> orders) {
  return [orders = std::move(orders)](const Collective& c, int rank, int) {
    std::vector<Plan> plans;
    const int count = static_cast<int>(orders.size());
    for (int k = 0; k < count; ++k) {
      const std::vector<int>& order = orders[static_cast<std::size_t>(k)];
      const Piece part = chunk_of(Piece::Where::Out, c.call.count, k, count);
      Collective its{.call = c.call};
      its.call.count = part.count;
      const auto position = std::find(order.begin(), order.end(), rank) - order.begin();
      Plan plan = ring_all_reduce(its, static_cast<int>(position), static_cast<int>(order.size()));
      for (PlanAction& action : plan.actions)
        if (action.peer >= 0) action.peer = order[static_cast<std::size_t>(action.peer)];
      plans.push_back(moved(std::move(plan), part.begin));
    }
    return side_by_side("all_reduce along rings", plans);
  };
}

}  // namespace aisc
