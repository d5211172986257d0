// Every algorithm of the menu against what it says it costs, and choosing by that.
#include "09_collectives/cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

#include "09_collectives/choose.h"
#include "common/comm/simulate.h"
#include "common/core/error.h"
#include "tests/comm/plan_runs.h"
#include "tests/support/exact_network.h"

namespace aisc::exact {
namespace {

// Bytes that ranks, folded ranks and 2 k segments divide, in whole F32.
std::int64_t even_bytes(int p, int segments) {
  return 4 * std::int64_t{p} * std::bit_floor(static_cast<unsigned>(p)) * 2 * segments;
}

std::vector<Tuning> tunings_of(const Algorithm& algorithm) {
  if (algorithm.name == "chain" || algorithm.name == "double_tree")
    return {{.segments = 1}, {.segments = 2}, {.segments = 7}};
  if (algorithm.name == "two_level")
    return {{.ranks_per_node = 1}, {.ranks_per_node = 2}, {.ranks_per_node = 4}};
  return {{}};
}

void for_all(const std::function<void(const Algorithm&, const Tuning&)>& f) {
  for (const Algorithm& algorithm : algorithms())
    for (const Tuning& tuning : tunings_of(algorithm)) {
      SCOPED_TRACE(testing::Message()
                   << name_of(algorithm.op) << " " << algorithm.name << ", " << tuning.segments
                   << " segments, " << tuning.ranks_per_node << " ranks a node");
      f(algorithm, tuning);
    }
}

TEST(CostOfEveryAlgorithm, IsWhatItsPlansDo) {
  for_all([](const Algorithm& algorithm, const Tuning& tuning) {
    for (const int p : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 17, 24, 31, 32, 33, 48, 63, 64}) {
      if (p % tuning.ranks_per_node != 0) continue;
      SCOPED_TRACE(testing::Message() << p << " ranks");
      const bool is_barrier = algorithm.op == CommOp::Barrier;
      const std::int64_t bytes =
          is_barrier ? 0 : even_bytes(p, tuning.segments) * tuning.ranks_per_node;
      const Collective c = call_of(algorithm.op, p, bytes);
      const auto plans = plan_runs::plans_of(plan_maker(algorithm, tuning), c, p);
      plan_runs::Total total;
      for (const Plan& plan : plans) {
        const Traffic t = traffic_of(plan);
        for (const auto field :
             {&Traffic::steps, &Traffic::messages, &Traffic::elements, &Traffic::added}) {
          total.most.*field = std::max(total.most.*field, t.*field);
          total.sum.*field += t.*field;
        }
      }
      const Cost cost = algorithm.cost(p, static_cast<double>(bytes), kFlat, tuning);
      EXPECT_EQ(cost.steps, total.most.steps);
      EXPECT_EQ(cost.messages, total.most.messages);
      EXPECT_EQ(cost.bytes, 4 * static_cast<double>(total.most.elements));
      EXPECT_EQ(cost.added_bytes, 4 * static_cast<double>(total.most.added));
      EXPECT_EQ(cost.total_bytes, 4 * static_cast<double>(total.sum.elements));
    }
  });
}

TEST(CostOfEveryAlgorithm, IsItsTimeFor2To64Ranks) {
  for_all([](const Algorithm& algorithm, const Tuning& tuning) {
    for (int p = 2; p <= 64; ++p) {
      if (p % tuning.ranks_per_node != 0) continue;
      const bool is_barrier = algorithm.op == CommOp::Barrier;
      for (const std::int64_t factor : {1, 16}) {
        const std::int64_t bytes =
            is_barrier ? 0 : even_bytes(p, tuning.segments) * tuning.ranks_per_node * factor;
        const Simulated simulated =
            simulate(plan_maker(algorithm, tuning), call_of(algorithm.op, p, bytes), p, kFlat);
        EXPECT_EQ(algorithm.cost(p, static_cast<double>(bytes), kFlat, tuning).seconds,
                  simulated.seconds)
            << p << " ranks, " << bytes << " bytes";
      }
    }
  });
}

// What ranks count themselves, on a communicator of threads in virtual time.
TEST(CostOfEveryAlgorithm, IsWhatCommStatsCount) {
  for_all([](const Algorithm& algorithm, const Tuning& tuning) {
    if (algorithm.op != CommOp::AllReduce && algorithm.op != CommOp::Broadcast) return;
    for (const int p : {2, 4, 6, 12}) {
      if (p % tuning.ranks_per_node != 0) continue;
      SCOPED_TRACE(testing::Message() << p << " ranks");
      const std::int64_t bytes = even_bytes(p, tuning.segments) * tuning.ranks_per_node;
      LaunchOptions options{.ranks = p, .network = kFlat};
      options.plans[algorithm.op] = plan_maker(algorithm, tuning);
      std::vector<CommStats> stats(static_cast<std::size_t>(p));
      const auto times = end_times(options, [&](Rank rank) {
        const Tensor x = f32(rank, bytes / 4);
        if (algorithm.op == CommOp::AllReduce)
          rank.world.all_reduce(x).wait();
        else
          rank.world.broadcast(x, 0).wait();
        stats[static_cast<std::size_t>(rank.world.rank())] = rank.world.stats();
      });
      const Cost cost = algorithm.cost(p, static_cast<double>(bytes), kFlat, tuning);
      EXPECT_EQ(cost.seconds, *std::max_element(times.begin(), times.end()));
      std::int64_t steps = 0, messages = 0, most = 0, total = 0;
      for (const CommStats& s : stats) {
        steps = std::max(steps, s.steps);
        messages = std::max(messages, s.sent().messages);
        most = std::max(most, s.sent().wire_bytes);
        total += s.sent().wire_bytes;
      }
      EXPECT_EQ(cost.steps, steps);
      EXPECT_EQ(cost.messages, messages);
      EXPECT_EQ(cost.bytes, static_cast<double>(most));
      EXPECT_EQ(cost.total_bytes, static_cast<double>(total));
    }
  });
}

TEST(Algorithms, AreFoundByName) {
  EXPECT_EQ(algorithm(CommOp::AllReduce, "rabenseifner").name, "rabenseifner");
  EXPECT_EQ(algorithm(CommOp::AllGather, "ring").op, CommOp::AllGather);
  try {
    algorithm(CommOp::Scatter, "ring");
    FAIL() << "expected an Error";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "no algorithm 'ring' of scatter; there are: binomial, direct");
  }
}

std::string refusal(const std::function<void()>& what) {
  try {
    what();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(CostOf, RefusesNonsense) {
  const Algorithm& ring = algorithm(CommOp::AllReduce, "ring");
  EXPECT_EQ(refusal([&] { cost(ring, 0, 8, kFlat); }),
            "cost: 0 ranks, 8 bytes: at least 1 and 0 expected");
  EXPECT_EQ(refusal([&] { cost(ring, 2, -1, kFlat); }),
            "cost: 2 ranks, -1 bytes: at least 1 and 0 expected");
}

// Nodes of 4 ranks, one card each, eight times slower than the links.
Network nodes(int cards) {
  Network network = kFlat;
  network.ranks_per_node = 4;
  network.cards_per_node = cards;
  network.card = {.latency_seconds = 4 * kAlpha, .seconds_per_byte = 8 * kBeta};
  return network;
}

TEST(CostOf, IsSimulatedWhereMessagesShareCards) {
  const Algorithm& ring = algorithm(CommOp::AllReduce, "ring");
  const double simulated =
      simulate(plan_maker(ring), call_of(CommOp::AllReduce, 8, 4096), 8, nodes(1)).seconds;
  EXPECT_EQ(cost(ring, 8, 4096, nodes(1)).seconds, simulated);
  EXPECT_GT(simulated, ring.cost(8, 4096, kFlat, {}).seconds);
  // Within one node there is nothing to share.
  EXPECT_EQ(cost(ring, 4, 4096, nodes(1)).seconds, ring.cost(4, 4096, kFlat, {}).seconds);
}

TEST(ChooseAllReduce, MeansShortStepsThenFewBytes) {
  EXPECT_EQ(choose_all_reduce(64, 4, kFlat).algorithm->name, "recursive_doubling");
  EXPECT_EQ(choose_all_reduce(64, 1 << 30, kFlat).algorithm->name, "rabenseifner");
}

TEST(ChooseAllReduce, MeansTwoLevelsWhereACardIsShared) {
  const Choice choice = choose_all_reduce(16, 1 << 22, nodes(4));
  EXPECT_EQ(choice.algorithm->name, "two_level");
  EXPECT_EQ(choice.tuning.ranks_per_node, 4);
}

// ---- plans that have been chosen ----------------------------------------------------------------

TEST(ChosenPlans, RunOnAnyCommunicator) {
  for (const int p : {1, 3, 4})
    for (const std::int64_t count : {1, 1000, 100'000}) {
      LaunchOptions options{.ranks = p, .network = kFlat};
      options.plans = chosen_plans(kFlat);
      const auto times = end_times(options, [&](Rank rank) {
        const Tensor x({count}, DType::F32, rank.device);
        for (std::int64_t i = 0; i < count; ++i)
          x.data<float>()[i] = static_cast<float>(rank.world.rank() + i % 5);
        rank.world.all_reduce(x).wait();
        for (std::int64_t i = 0; i < count; ++i)
          ASSERT_EQ(x.data<float>()[i], static_cast<float>(p * (p - 1) / 2 + p * (i % 5)));
      });
      const Choice choice = choose_all_reduce(p, 4.0 * static_cast<double>(count), kFlat);
      const Simulated simulated = simulate(plan_maker(*choice.algorithm, choice.tuning),
                                           call_of(CommOp::AllReduce, p, 4 * count), p, kFlat);
      EXPECT_EQ(*std::max_element(times.begin(), times.end()), simulated.seconds);
    }
}

// ---- crossovers ---------------------------------------------------------------------------------

TEST(Crossover, IsTheSameByFormulaAndBySimulation) {
  const auto of = [](const char* name) -> const Algorithm& {
    return algorithm(CommOp::AllReduce, name);
  };
  for (const int p : {4, 6, 16, 33, 64})
    for (const char* later : {"ring", "rabenseifner"}) {
      const std::int64_t unit = even_bytes(p, 1), most = std::int64_t{1} << 32;
      const std::int64_t by_formula =
          crossover(of("recursive_doubling"), of(later), p, kFlat, unit, most, By::Formula);
      EXPECT_EQ(by_formula, crossover(of("recursive_doubling"), of(later), p, kFlat, unit, most,
                                      By::Simulation))
          << p << " ranks, " << later;
      EXPECT_GT(by_formula, 0);
    }
}

// Powers of two: 2 L a + 2 n (p-1)/p b + n (p-1)/p g = L a + L n (b + g), solved for n.
TEST(Crossover, IsWhereTheLinesMeet) {
  const int p = 16;
  const double L = 4, share = 15.0 / 16;
  const double n = L * kAlpha / (L * (kBeta + kGamma) - share * (2 * kBeta + kGamma));
  const std::int64_t unit = even_bytes(p, 1);
  const auto expected = static_cast<std::int64_t>(std::ceil(n / static_cast<double>(unit))) * unit;
  EXPECT_EQ(crossover(algorithm(CommOp::AllReduce, "recursive_doubling"),
                      algorithm(CommOp::AllReduce, "rabenseifner"), p, kFlat, unit, 1 << 30),
            expected);
}

TEST(Crossover, MayNotBeReached) {
  EXPECT_EQ(crossover(algorithm(CommOp::AllReduce, "ring"),
                      algorithm(CommOp::AllReduce, "recursive_doubling"), 16, kFlat, 4096, 1 << 30),
            4096);  // from the first bytes on: it takes fewer steps
  EXPECT_EQ(crossover(algorithm(CommOp::AllReduce, "rabenseifner"),
                      algorithm(CommOp::AllReduce, "ring"), 16, kFlat, 4096, 1 << 30),
            -1);
}

}  // namespace
}  // namespace aisc::exact
