// What plans cost, counted three times: from the plans themselves, in simulated time, and by a
// communicator whose ranks are threads.
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

// Flat networks on which latency, bytes or sums count most: who waits for whom is not the same on
// all of them. Powers of two, so that times are exact.
inline std::vector<Network> flat_networks() {
  const auto flat = [](double alpha, double beta, double gamma) {
    return Network{.link = {.latency_seconds = alpha, .seconds_per_byte = beta},
                   .reduce_seconds_per_byte = gamma};
  };
  return {exact::kFlat, flat(0x1p10, 0x1p-10, 0x1p-8), flat(0x1p-10, 0x1p-2, 0x1p-12),
          flat(0x1p-4, 0x1p-16, 1)};
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
  EXPECT_EQ(found.steps, expected.steps);
  EXPECT_EQ(found.messages, expected.messages);
  EXPECT_EQ(found.bytes, expected.bytes);
  EXPECT_EQ(found.added_bytes, expected.added_bytes);
  EXPECT_EQ(found.total_bytes, expected.total_bytes);
  EXPECT_EQ(found.seconds, expected.seconds);
}

// The messages that a rank sends, step by step: "2: 4, 3: 4 | 1: 2", to 2 and 3 four elements each,
// then to 1 two. Steps in which it sends nothing are left out.
inline std::string sends_of(const Plan& plan) {
  std::string text;
  for (std::size_t s = 0; s < plan.steps(); ++s) {
    std::string step;
    for (const PlanAction& action : plan.step(s))
      if (action.kind == PlanAction::Kind::Send)
        step += (step.empty() ? "" : ", ") + std::to_string(action.peer) + ": " +
                std::to_string(action.from.count);
    if (!step.empty()) text += (text.empty() ? "" : " | ") + step;
  }
  return text;
}

// Element i of rank r: small integers, so that sums in F32 are exact.
inline float value(int r, std::int64_t i) { return static_cast<float>((31 * r + 7 * i) % 61); }

// What rank r of p must end with.
inline float expected(CommOp op, int p, int r, std::int64_t count, std::int64_t i) {
  if (op == CommOp::AllGather) return value(static_cast<int>(i / count), i % count);
  if (op == CommOp::AllToAll) return value(static_cast<int>(i / count), r * count + i % count);
  float sum = 0;
  for (int k = 0; k < p; ++k) sum += value(k, op == CommOp::ReduceScatter ? r * count + i : i);
  return sum;
}

struct Measured {
  std::vector<double> end_seconds;
  std::vector<CommStats> stats;
  double seconds() const { return *std::max_element(end_seconds.begin(), end_seconds.end()); }
};

// Runs the collective with `bytes` bytes in a rank's largest buffer and looks at the results.
inline Measured measured(const PlanMaker& maker, CommOp op, int ranks, std::int64_t bytes,
                         const Network& network) {
  const std::int64_t count = call_of(op, ranks, bytes).call.count, all = bytes / 4;
  LaunchOptions options{.ranks = ranks, .network = network};
  options.plans[op] = maker;
  Measured measured{.stats = std::vector<CommStats>(static_cast<std::size_t>(ranks))};
  measured.end_seconds = exact::end_times(options, [&](Rank rank) {
    const int me = rank.world.rank();
    const Tensor in = exact::f32(rank, op == CommOp::AllGather ? count : all);
    const bool in_place = op == CommOp::AllReduce;
    const Tensor out =
        in_place ? in.share() : exact::f32(rank, op == CommOp::ReduceScatter ? count : all);
    for (std::int64_t i = 0; i < in.count(); ++i) in.data<float>()[i] = value(me, i);
    if (op == CommOp::AllReduce) rank.world.all_reduce(out).wait();
    if (op == CommOp::ReduceScatter) rank.world.reduce_scatter(in, out).wait();
    if (op == CommOp::AllGather) rank.world.all_gather(in, out).wait();
    if (op == CommOp::AllToAll) rank.world.all_to_all(in, out).wait();
    for (std::int64_t i = 0; i < out.count(); ++i)
      ASSERT_EQ(out.data<float>()[i], expected(op, ranks, me, count, i))
          << "rank " << me << ", element " << i;
    measured.stats[static_cast<std::size_t>(me)] = rank.world.stats();
  });
  return measured;
}

// The communicator counts what the plans say, and takes the simulated time.
inline void expect_measured(const PlanMaker& maker, CommOp op, int ranks, std::int64_t bytes,
                            const Network& network) {
  SCOPED_TRACE(testing::Message() << ranks << " ranks, " << bytes << " bytes");
  const Collective call = call_of(op, ranks, bytes);
  const Measured found = measured(maker, op, ranks, bytes, network);
  EXPECT_EQ(found.end_seconds, simulate(maker, call, ranks, network).end_seconds);
  for (int r = 0; r < ranks; ++r) {
    const Traffic plan = traffic_of(maker(call, r, ranks));
    const CommStats& stats = found.stats[static_cast<std::size_t>(r)];
    EXPECT_EQ(stats.steps, plan.steps) << "rank " << r;
    EXPECT_EQ(stats.sent().messages, plan.messages) << "rank " << r;
    EXPECT_EQ(stats.sent().wire_bytes, 4 * plan.elements) << "rank " << r;
  }
}

}  // namespace aisc::plan_costs
