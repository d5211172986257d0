// What plans cost, counted from the plans themselves and in simulated time.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "09_collectives/algorithms.h"
#include "common/comm/simulate.h"
#include "tests/comm/plan_runs.h"
#include "tests/support/exact_network.h"

namespace aisc::plan_costs {

// Flat networks on which latency, bytes or sums count most, or two of them: who waits for whom is
// not the same on all of them. Powers of two, so that times are exact.
inline std::vector<Network> flat_networks() {
  const auto flat = [](double alpha, double beta, double gamma) {
    return Network{.link = {.latency_seconds = alpha, .seconds_per_byte = beta},
                   .reduce_seconds_per_byte = gamma};
  };
  return {exact::kFlat,
          flat(0x1p10, 0x1p-10, 0x1p-8),
          flat(0x1p-10, 0x1p-2, 0x1p-12),
          flat(0x1p-4, 0x1p-16, 1),
          flat(0x1p-14, 0x1p-20, 0x1p-18),
          flat(0x1p-16, 0x1p-18, 0x1p-19)};
}
inline std::string text_of(const Network& flat) {
  return "alpha " + std::to_string(flat.link.latency_seconds) + ", beta " +
         std::to_string(flat.link.seconds_per_byte) + ", gamma " +
         std::to_string(flat.reduce_seconds_per_byte);
}

// As Cost, of `bytes` bytes in a rank's largest buffer.
inline Cost counted(const PlanMaker& maker, CommOp op, int ranks, std::int64_t bytes,
                    const Network& network) {
  const Collective call = call_of(op, ranks, bytes);
  Cost cost;
  for (const Plan& plan : plan_runs::plans_of(maker, call, ranks)) {
    const Traffic t = traffic_of(plan);
    cost.steps = std::max(cost.steps, t.steps);
    cost.messages = std::max(cost.messages, t.messages);
    cost.bytes = std::max(cost.bytes, exact::bytes(static_cast<double>(t.elements)));
    cost.added_bytes = std::max(cost.added_bytes, exact::bytes(static_cast<double>(t.added)));
    cost.total_bytes += exact::bytes(static_cast<double>(t.elements));
  }
  cost.seconds = simulate(maker, call, ranks, network).seconds;
  return cost;
}

inline void expect_equal(const Cost& found, const Cost& expected) {
  EXPECT_EQ(found.steps, expected.steps) << "steps of the rank that has most";
  EXPECT_EQ(found.messages, expected.messages) << "messages of the rank that sends most";
  EXPECT_EQ(found.bytes, expected.bytes) << "bytes of the rank that sends most";
  EXPECT_EQ(found.added_bytes, expected.added_bytes) << "bytes added by the rank that adds most";
  EXPECT_EQ(found.total_bytes, expected.total_bytes) << "bytes sent by all ranks together";
  EXPECT_EQ(found.seconds, expected.seconds) << "seconds until the last rank is done";
}

}  // namespace aisc::plan_costs
