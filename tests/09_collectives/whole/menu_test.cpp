// Every algorithm of the menu against what it says it costs, and choosing by that.
#include "09_collectives/cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <numeric>

#include "09_collectives/choose.h"
#include "tests/09_collectives/plan_costs.h"
#include "tests/09_collectives/run_plans.h"

namespace aisc::exact {
namespace {

// Bytes that ranks, folded ranks and 2 k segments divide, on each of a node's ranks, in whole F32.
std::int64_t even_bytes(int p, const Tuning& tuning = {}) {
  return 4 * std::int64_t{p} * std::bit_floor(static_cast<unsigned>(p)) * 2 * tuning.segments *
         tuning.ranks_per_node;
}

std::vector<Tuning> tunings_of(const Algorithm& algorithm) {
  std::vector<Tuning> tunings;
  if (algorithm.name == "chain" || algorithm.name == "double_tree")
    for (const int k : {1, 2, 3, 4, 5, 7, 16}) tunings.push_back({.segments = k});
  else if (algorithm.name == "two_level")
    for (const int g : {1, 2, 4}) tunings.push_back({.ranks_per_node = g});
  else
    tunings.push_back({});
  return tunings;
}

// f(algorithm, tuning, ranks) for all algorithms, on those numbers of ranks that nodes divide.
void for_all(const std::vector<int>& ranks,
             const std::function<void(const Algorithm&, const Tuning&, int)>& f) {
  for (const Algorithm& algorithm : algorithms())
    for (const Tuning& tuning : tunings_of(algorithm))
      for (const int p : ranks) {
        if (p % tuning.ranks_per_node != 0) continue;
        SCOPED_TRACE(testing::Message() << name_of(algorithm.op) << " " << algorithm.name << ", "
                                        << p << " ranks, " << tuning.segments << " segments, "
                                        << tuning.ranks_per_node << " ranks a node");
        f(algorithm, tuning, p);
      }
}

TEST(CostOfEveryAlgorithm, IsWhatItsPlansDoAndTakeFor1To64Ranks) {
  std::vector<int> ranks(64);
  std::iota(ranks.begin(), ranks.end(), 1);
  for_all(ranks, [](const Algorithm& algorithm, const Tuning& tuning, int p) {
    const CommOp op = algorithm.op;
    const std::int64_t bytes = op == CommOp::Barrier ? 0 : even_bytes(p, tuning);
    std::vector<Network> networks = plan_costs::flat_networks();
    if (op != CommOp::AllReduce && op != CommOp::Reduce && op != CommOp::ReduceScatter)
      networks.resize(3);  // the others differ in what sums take
    for (const Network& network : networks) {
      SCOPED_TRACE(plan_costs::text_of(network));
      plan_costs::expect_equal(
          algorithm.cost(p, static_cast<double>(bytes), network, tuning),
          plan_costs::counted(plan_maker(algorithm, tuning), op, p, bytes, network));
    }
  });
}

// What ranks count themselves, on a communicator of threads in virtual time.
TEST(CostOfEveryAlgorithm, IsItsTimeOnACommunicator) {
  Network slow_sums = kFlat;
  slow_sums.reduce_seconds_per_byte = 16 * kBeta;
  for_all(
      {1, 2, 3, 4, 6, 7, 12, 13, 32}, [&](const Algorithm& algorithm, const Tuning& tuning, int p) {
        const std::int64_t bytes = algorithm.op == CommOp::Barrier ? 0 : even_bytes(p, tuning);
        const Collective c = call_of(algorithm.op, p, bytes);
        for (const Network& network : {kFlat, slow_sums})
          EXPECT_EQ(plan_runs::expect_runs_as_planned(plan_maker(algorithm, tuning), c, p, network)
                        .last_seconds(),
                    algorithm.cost(p, static_cast<double>(bytes), network, tuning).seconds);
      });
}

// Whole buffers may be of any length: the sum of all messages stays what it is.
TEST(CostOfEveryAlgorithm, HasTheBytesOfAllRanksForBuffersThatDoNotDivide) {
  for_all({2, 3, 5, 7, 8, 13, 64}, [](const Algorithm& algorithm, const Tuning& tuning, int p) {
    const CommOp op = algorithm.op;
    if (op != CommOp::AllReduce && op != CommOp::Broadcast && op != CommOp::Reduce) return;
    for (const int n : {0, 1, 5, 17, 100, 1001}) {
      const PlanMaker maker = plan_maker(algorithm, tuning);
      std::int64_t sum = 0;
      for (const Plan& plan : plan_runs::plans_of(maker, call_of(op, p, 4 * n), p))
        sum += traffic_of(plan).elements;
      EXPECT_EQ(algorithm.cost(p, 4 * n, kFlat, tuning).total_bytes, 4 * sum) << "count " << n;
    }
  });
}

TEST(Algorithms, AreFoundByName) {
  EXPECT_EQ(algorithm(CommOp::AllReduce, "rabenseifner").name, "rabenseifner");
  EXPECT_EQ(algorithm(CommOp::AllGather, "ring").op, CommOp::AllGather);
  EXPECT_EQ(message_of([] { algorithm(CommOp::Scatter, "ring"); }),
            "no algorithm 'ring' of scatter; there are: binomial, direct");
}

TEST(CostOf, RefusesNonsense) {
  const Algorithm& ring = algorithm(CommOp::AllReduce, "ring");
  EXPECT_EQ(message_of([&] { cost(ring, 0, 8, kFlat); }),
            "cost: 0 ranks, 8 bytes: at least 1 and 0 expected");
  EXPECT_EQ(message_of([&] { cost(ring, 2, -1, kFlat); }),
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
      const std::int64_t unit = even_bytes(p), most = std::int64_t{1} << 32;
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
  const std::int64_t unit = even_bytes(p);
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
