// Plans of this module as they run: on threads, counted by CommStats; in virtual time; and by
// simulate().
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/comm/simulate.h"
#include "tests/comm/plan_runs.h"
#include "tests/support/exact_network.h"
#include "tests/support/message_of.h"

namespace aisc::plan_runs {

// A call with tensors of zeros; `count` as in Call.
inline Work call_on(Rank& rank, CommOp op, std::int64_t count, int root) {
  const std::int64_t whole = rank.world.size() * count;
  const auto f32 = [&](std::int64_t n) { return exact::f32(rank, n); };
  switch (op) {
    case CommOp::AllReduce:
      return rank.world.all_reduce(f32(count));
    case CommOp::Reduce:
      return rank.world.reduce(f32(count), f32(count), root);
    case CommOp::ReduceScatter:
      return rank.world.reduce_scatter(f32(whole), f32(count));
    case CommOp::AllGather:
      return rank.world.all_gather(f32(count), f32(whole));
    case CommOp::Gather:
      return rank.world.gather(f32(count), f32(whole), root);
    case CommOp::Scatter:
      return rank.world.scatter(f32(whole), f32(count), root);
    case CommOp::Broadcast:
      return rank.world.broadcast(f32(count), root);
    case CommOp::AllToAll:
      return rank.world.all_to_all(f32(whole), f32(whole));
    default:
      rank.world.barrier();
      return Work();
  }
}

// What each rank sent, and when it was done, in virtual time on `network`, as its communicator
// counts it.
struct Counted {
  std::vector<Traffic> traffic;  // without what was added
  std::vector<double> seconds;
  double last_seconds() const { return *std::max_element(seconds.begin(), seconds.end()); }
};
inline Counted run_on_threads(const PlanMaker& maker, const Collective& c, int p,
                              const Network& network = exact::kFlat) {
  Counted counted{std::vector<Traffic>(static_cast<std::size_t>(p)), {}};
  LaunchOptions options{.ranks = p, .network = network};
  options.plans[c.call.op] = maker;
  const std::string error = message_of([&] {
    counted.seconds = exact::end_times(options, [&](Rank rank) {
      call_on(rank, c.call.op, c.call.count, c.call.peer).wait();
      const CommStats stats = rank.world.stats();
      counted.traffic[static_cast<std::size_t>(rank.world.rank())] = {
          .steps = stats.steps,
          .messages = stats.sent().messages,
          .elements = stats.sent().wire_bytes / 4};
    });
  });
  EXPECT_EQ(error, "");
  counted.seconds.resize(static_cast<std::size_t>(p), -1);  // nobody's, after an error
  return counted;
}

// On threads a rank sends what its plan says, in messages and steps; and it takes as long as
// simulate() says, on each rank. Returns the seconds of the last.
inline double expect_runs_as_planned(const PlanMaker& maker, const Collective& c, int p,
                                     const Network& network = exact::kFlat) {
  const Counted counted = run_on_threads(maker, c, p, network);
  for (int r = 0; r < p; ++r) {
    const Traffic planned = traffic_of(maker(c, r, p));
    const Traffic& sent = counted.traffic[static_cast<std::size_t>(r)];
    EXPECT_EQ(sent.steps, planned.steps) << "rank " << r << " of " << p;
    EXPECT_EQ(sent.messages, planned.messages) << "rank " << r << " of " << p;
    EXPECT_EQ(sent.elements, planned.elements) << "rank " << r << " of " << p;
  }
  EXPECT_EQ(message_of([&] {
              EXPECT_EQ(simulate(maker, c, p, network).end_seconds, counted.seconds)
                  << p << " ranks";
            }),
            "");
  return counted.last_seconds();
}

// Seconds until the last rank is done; -1, and a failure, where the plans do not fit together.
inline double simulated_seconds(const PlanMaker& maker, const Collective& c, int p,
                                const Network& network = exact::kFlat) {
  double seconds = -1;
  EXPECT_EQ(message_of([&] { seconds = simulate(maker, c, p, network).seconds; }), "");
  return seconds;
}

inline Collective all_reduce(std::int64_t count) { return call(CommOp::AllReduce, count); }
inline Collective broadcast(std::int64_t n, int root = 0) {
  return call(CommOp::Broadcast, n, root);
}

// What ranks that begin with these buffers, on which a plan works in place, end with.
using Rows = std::vector<std::vector<std::int64_t>>;
inline Rows outputs(const PlanMaker& maker, const Collective& c, const Rows& begin) {
  const int p = static_cast<int>(begin.size());
  const auto plans = plans_of(maker, c, p);
  auto memory = each_of(p, [&](int r) {
    const std::vector<std::int64_t>& values = begin[static_cast<std::size_t>(r)];
    return Memory{values, {}, {0, std::ssize(values)}};
  });
  run(plans, memory);
  return each_of(p, [&](int r) {
    const std::vector<std::int64_t>& values = memory[static_cast<std::size_t>(r)].values;
    return std::vector(values.begin(),
                       values.begin() + std::ssize(begin[static_cast<std::size_t>(r)]));
  });
}

// The ranks that this plan sends to, in order.
inline std::vector<int> receivers(const Plan& plan) {
  std::vector<int> ranks;
  for (const PlanAction& action : plan.actions)
    if (action.kind == PlanAction::Kind::Send) ranks.push_back(action.peer);
  return ranks;
}
inline std::vector<int> senders(const Plan& plan) {
  std::vector<int> ranks;
  for (const PlanAction& action : plan.actions)
    if (action.kind == PlanAction::Kind::Recv) ranks.push_back(action.peer);
  return ranks;
}

}  // namespace aisc::plan_runs
