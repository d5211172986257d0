// Plans of this module as they run: on threads, counted by CommStats, in virtual time; by
// simulate(); and on numbers that a person can follow.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "common/comm/simulate.h"
#include "tests/comm/plan_runs.h"
#include "tests/support/drawn.h"
#include "tests/support/exact_network.h"
#include "tests/support/message_of.h"

namespace aisc::plan_runs {

// A call in which rank r has value(r, i): it must end with what the operation says.
inline void call_on(Rank& rank, const Call& c) {
  Communicator& world = rank.world;
  const int me = world.rank(), root = c.peer;
  const CommOp op = c.op;
  const std::int64_t whole = world.size() * c.count;
  const bool takes_whole =
      op == CommOp::ReduceScatter || op == CommOp::Scatter || op == CommOp::AllToAll;
  const bool gives_whole =
      op == CommOp::AllGather || op == CommOp::Gather || op == CommOp::AllToAll;
  const bool is_in_place = op == CommOp::AllReduce || op == CommOp::Broadcast;
  const Tensor in = exact::f32(rank, takes_whole ? whole : c.count);
  const Tensor out = is_in_place ? in.share() : exact::f32(rank, gives_whole ? whole : c.count);
  for (std::int64_t i = 0; i < in.count(); ++i)
    in.data<float>()[i] = static_cast<float>(value(me, i));
  const auto done = [&]() -> Work {
    switch (op) {
      case CommOp::AllReduce:
        return world.all_reduce(out);
      case CommOp::Reduce:
        return world.reduce(in, out, root);
      case CommOp::ReduceScatter:
        return world.reduce_scatter(in, out);
      case CommOp::AllGather:
        return world.all_gather(in, out);
      case CommOp::Gather:
        return world.gather(in, out, root);
      case CommOp::Scatter:
        return world.scatter(in, out, root);
      case CommOp::Broadcast:
        return world.broadcast(out, root);
      case CommOp::AllToAll:
        return world.all_to_all(in, out);
      default:
        world.barrier();
        return Work();
    }
  };
  done().wait();
  if (op == CommOp::Barrier || ((op == CommOp::Reduce || op == CommOp::Gather) && me != root))
    return;
  for (std::int64_t i = 0; i < out.count(); ++i)
    ASSERT_EQ(out.data<float>()[i], static_cast<float>(end_of(c, me, world.size(), i)))
        << "rank " << me << ", element " << i;
}

// What ranks count, and when each is done.
struct Counted {
  std::vector<CommStats> stats;
  std::vector<double> seconds{};
  double last_seconds() const { return *std::max_element(seconds.begin(), seconds.end()); }
};

// On threads, in virtual time on `network`, a rank ends with what it has to, and sends what its
// plan says, in messages and steps; and it takes as long as simulate() says, on each rank.
inline Counted expect_runs_as_planned(const PlanMaker& maker, const Collective& c, int p,
                                      const Network& network = exact::kFlat) {
  SCOPED_TRACE(testing::Message() << p << " ranks, count " << c.call.count);
  const std::vector<Plan> plans = plans_of(maker, c, p);
  Counted counted{std::vector<CommStats>(plans.size()), std::vector<double>(plans.size(), -1)};
  if (testing::Test::HasFailure()) return counted;  // the first failure is that of the fewest ranks
  LaunchOptions options{.ranks = p, .network = network};
  options.plans[c.call.op] = maker;
  const std::string error = message_of([&] {
    counted.seconds = exact::end_times(options, [&](Rank rank) {
      call_on(rank, c.call);
      counted.stats[static_cast<std::size_t>(rank.world.rank())] = rank.world.stats();
    });
    EXPECT_EQ(simulate(maker, c, p, network).end_seconds, counted.seconds)
        << "the time at which each rank is done, by simulate() and on threads";
  });
  EXPECT_TRUE(error.empty()) << error;
  counted.seconds.resize(plans.size(), -1);  // nobody's, after an error
  for (std::size_t r = 0; r < plans.size(); ++r) {
    const Traffic planned = traffic_of(plans[r]);
    const CommStats& stats = counted.stats[r];
    EXPECT_EQ(stats.steps, planned.steps) << "rank " << r << ": steps";
    EXPECT_EQ(stats.sent().messages, planned.messages) << "rank " << r << ": messages sent";
    EXPECT_EQ(stats.sent().wire_bytes, 4 * planned.elements) << "rank " << r << ": bytes sent";
  }
  return counted;
}

// Seconds until the last rank is done; -1, and a failure, where the plans do not fit together.
inline double simulated_seconds(const PlanMaker& maker, const Collective& c, int p,
                                const Network& network = exact::kFlat) {
  double seconds = -1;
  const std::string error = message_of([&] { seconds = simulate(maker, c, p, network).seconds; });
  EXPECT_TRUE(error.empty()) << p << " ranks, count " << c.call.count << ": " << error;
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

// f(ranks, count, root) for five sizes, drawn anew for each seed.
inline void for_drawn_sizes(const std::string& what, int most_ranks, std::int64_t most_count,
                            const std::function<void(int, std::int64_t, int)>& f) {
  for (int k = 0; k < 5; ++k) {
    const std::string name = what + std::to_string(k);
    const auto p = static_cast<int>(drawn("ranks of " + name, 2, most_ranks));
    const std::int64_t n = drawn("count of " + name, 1, most_count);
    const auto root = static_cast<int>(drawn("root of " + name, 0, p - 1));
    SCOPED_TRACE(testing::Message() << p << " ranks, count " << n << ", root " << root);
    f(p, n, root);
    if (testing::Test::HasFailure()) return;
  }
}

// Every rank is done after so many seconds, with `bytes` bytes in its largest buffer.
inline void expect_all_end(const PlanMaker& maker, CommOp op, int p, std::int64_t bytes,
                           double seconds) {
  EXPECT_EQ(simulate(maker, call_of(op, p, bytes), p, exact::kFlat).end_seconds,
            std::vector<double>(static_cast<std::size_t>(p), seconds))
      << p << " ranks";
}

// All ranks end with the same bits, which are returned, of an all_reduce whose sums lose some.
inline std::vector<float> expect_same_bits(const PlanMaker& maker, int p) {
  const auto outs = sums_that_lose_bits(maker, p);
  for (const auto& out : outs) EXPECT_EQ(out, outs[0]) << p << " ranks";
  return outs[0];
}
// What these are where p ranks are added in their order.
inline std::vector<float> added_in_order(int p) {
  return each_of(1000, [&](int i) {
    float sum = losing_bits(0, i);
    for (int r = 1; r < p; ++r) sum += losing_bits(r, i);
    return sum;
  });
}

// An all_to_all of one element to each: rank r has 10 r + k for rank k, and gets 10 k + r from it.
inline void expect_transposes_by_hand(const PlanMaker& maker, int p) {
  auto memory = each_of(p, [&](int r) {
    Memory m = apart(r, p, p);
    for (int k = 0; k < p; ++k) at(m, m.in, k) = 10 * r + k;
    return m;
  });
  run(plans_of(maker, call(CommOp::AllToAll, 1), p), memory);
  expect_outs(memory, [](int r, std::int64_t k) { return 10 * k + r; });
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
