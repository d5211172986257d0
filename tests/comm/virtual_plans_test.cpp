// What collectives cost in virtual time: each plan against its formula, exactly, and rings and
// trees over more ranks than any machine at hand has.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tests/comm/timed_calls.h"
#include "tests/support/sanitized.h"

namespace aisc::exact {
namespace {

// Each default plan's time for p ranks and n F32 elements, a multiple of p; L = ceil(log2 p).
struct TimeOfPlan {
  CommOp op;
  std::function<double(double, double, double)> seconds;  // (p, n, L)
  enum class Holds { OnEveryRank, OnTheLastRank, OnTheLastOfPowersOfTwo } holds;
};

std::vector<TimeOfPlan> default_plan_times() {
  using enum TimeOfPlan::Holds;
  const auto pairwise = [](double p, double n, double) { return (p - 1) * message(n / p); };
  const auto direct = [](double p, double n, double) {
    return kAlpha + (p - 1) * bytes(n / p) * kBeta;
  };
  return {
      {CommOp::AllReduce,
       [](double p, double n, double) {
         return 2 * (p - 1) * message(n / p) + (p - 1) * bytes(n / p) * kGamma;
       },
       OnEveryRank},
      {CommOp::ReduceScatter,
       [](double p, double n, double) {
         return (p - 1) * (message(n / p) + bytes(n / p) * kGamma);
       },
       OnEveryRank},
      {CommOp::AllGather, pairwise, OnEveryRank},
      {CommOp::AllToAll, pairwise, OnEveryRank},
      {CommOp::Broadcast, [](double, double n, double L) { return L * message(n); }, OnTheLastRank},
      {CommOp::Reduce,
       [](double, double n, double L) { return L * (message(n) + bytes(n) * kGamma); },
       OnTheLastOfPowersOfTwo},
      {CommOp::Gather, direct, OnTheLastRank},
      {CommOp::Scatter, direct, OnTheLastRank},
      {CommOp::Barrier, [](double, double, double L) { return L * kAlpha; }, OnEveryRank},
  };
}

// The plans that are no defaults.
PlanTable other_plans() {
  PlanTable plans;
  plans[CommOp::AllReduce] = direct_all_reduce;
  plans[CommOp::ReduceScatter] = direct_reduce_scatter;
  plans[CommOp::AllGather] = direct_all_gather;
  plans[CommOp::AllToAll] = direct_all_to_all;
  plans[CommOp::Broadcast] = scatter_all_gather_broadcast;
  return plans;
}

std::vector<TimeOfPlan> other_plan_times() {
  std::vector<TimeOfPlan> cases = default_plan_times();
  const auto direct = [](double p, double n, double) {
    return kAlpha + (p - 1) * bytes(n / p) * kBeta;
  };
  cases.resize(5);
  cases[0].seconds = [](double p, double n, double) {
    return kAlpha + (p - 1) * bytes(n) * (kBeta + kGamma);
  };
  cases[1].seconds = [](double p, double n, double) {
    return kAlpha + (p - 1) * bytes(n / p) * (kBeta + kGamma);
  };
  cases[2].seconds = cases[3].seconds = direct;
  cases[4].seconds = [](double p, double n, double) {
    return p * kAlpha + 2 * (p - 1) * bytes(n / p) * kBeta;
  };
  return cases;
}

// Runs each case with p, 16 p and 1024 p elements on p ranks.
void expect_times(int p, const std::vector<TimeOfPlan>& cases, const PlanTable& plans) {
  const double L = std::bit_width(static_cast<unsigned>(p - 1));
  const std::vector<std::int64_t> sizes{p, 16 * p, 1024 * p};
  // times[call][rank]; calls start together at multiples of 1024 s, when all links are free.
  std::vector<std::vector<double>> times(cases.size() * sizes.size(),
                                         std::vector<double>(static_cast<std::size_t>(p)));
  end_times({.ranks = p, .plans = plans}, [&](Rank rank) {
    std::size_t i = 0;
    for (const TimeOfPlan& c : cases)
      for (const std::int64_t size : sizes) {
        const double start = 1024.0 * static_cast<double>(i + 1);
        rank.clock.advance_to(start);
        call(rank, call_of(c.op, p, 4 * size));
        times[i++][static_cast<std::size_t>(rank.world.rank())] = rank.clock.now() - start;
      }
  });
  std::size_t i = 0;
  for (const TimeOfPlan& c : cases)
    for (const std::int64_t size : sizes) {
      const std::vector<double>& of_ranks = times[i++];
      const double expected = c.seconds(p, static_cast<double>(size), L);
      const double last = *std::max_element(of_ranks.begin(), of_ranks.end());
      const std::string what =
          std::string(name_of(c.op)) + " of " + std::to_string(size) + " x F32";
      if (c.holds == TimeOfPlan::Holds::OnTheLastOfPowersOfTwo &&
          !std::has_single_bit(unsigned(p))) {
        EXPECT_LE(last, expected) << what;
      } else {
        EXPECT_EQ(last, expected) << what;
      }
      if (c.holds == TimeOfPlan::Holds::OnEveryRank) {
        EXPECT_EQ(*std::min_element(of_ranks.begin(), of_ranks.end()), expected) << what;
      }
    }
}

class VirtualPlans : public ::testing::TestWithParam<int> {};

TEST_P(VirtualPlans, DefaultsTakeTheTimeOfTheirFormulas) {
  expect_times(GetParam(), default_plan_times(), {});
}

TEST_P(VirtualPlans, OthersTakeTheTimeOfTheirFormulas) {
  expect_times(GetParam(), other_plan_times(), other_plans());
}

TEST_P(VirtualPlans, RecursiveDoublingTakesOneStepMoreWherePIsNoPowerOfTwo) {
  const int p = GetParam();
  PlanTable plans;
  plans[CommOp::AllReduce] = recursive_doubling_all_reduce;
  std::vector<TimeOfPlan> cases = default_plan_times();
  cases.resize(1);
  cases[0].holds = TimeOfPlan::Holds::OnTheLastRank;
  cases[0].seconds = [p](double, double n, double L) {
    const int more = std::has_single_bit(unsigned(p)) ? 0 : 1;
    return (L + more) * message(n) + L * bytes(n) * kGamma;
  };
  expect_times(p, cases, plans);
}

TEST_P(VirtualPlans, DirectBroadcastPassesTheRootsLinkAsOftenAsThereAreOthers) {
  const int p = GetParam();
  PlanTable plans;
  plans[CommOp::Broadcast] = direct_broadcast;
  std::vector<TimeOfPlan> cases{default_plan_times()[4]};
  cases[0].seconds = [](double ranks, double n, double) {
    return kAlpha + (ranks - 1) * bytes(n) * kBeta;
  };
  expect_times(p, cases, plans);
}

INSTANTIATE_TEST_SUITE_P(Ranks, VirtualPlans,
                         ::testing::Values(2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 32, 33, 63, 64),
                         [](const auto& test) { return std::to_string(test.param); });

// Three ranks: rank 2's message comes while the root still adds rank 1's, and waits for the link.
TEST(VirtualTime, TreeReduceOverThreeRanks) {
  const auto times = end_times(
      {.ranks = 3}, [](Rank rank) { rank.world.reduce(f32(rank, 256), f32(rank, 256), 0).wait(); });
  EXPECT_EQ(times[0], kAlpha + 2 * bytes(256) * kBeta + bytes(256) * kGamma);
}

// Sums integers, exact in F32 below 2^24, and returns the time of the last rank.
double sum_over(int ranks, std::int64_t count, PlanTable plans) {
  const auto times = end_times({.ranks = ranks, .plans = std::move(plans)}, [&](Rank rank) {
    const Tensor x({count}, DType::F32, rank.device);
    for (std::int64_t i = 0; i < count; ++i)
      x.data<float>()[i] = static_cast<float>(rank.world.rank() + i % 3);
    rank.world.all_reduce(x).wait();
    for (std::int64_t i = 0; i < count; ++i)
      ASSERT_EQ(x.data<float>()[i], static_cast<float>(ranks * (ranks - 1) / 2 + ranks * (i % 3)));
  });
  return *std::max_element(times.begin(), times.end());
}

TEST(VirtualTime, RingAllReduceOverHundredsOfRanks) {
  const int p = kSanitized ? 64 : 512;
  EXPECT_EQ(sum_over(p, 16 * p, {}), 2 * (p - 1) * message(16) + (p - 1) * bytes(16) * kGamma);
}

TEST(VirtualTime, TreeAllReduceTakesTheLatencyOfATreeOverUpToThousandsOfRanks) {
  PlanTable plans;
  plans[CommOp::AllReduce] = tree_all_reduce;
  for (const int p : {2, 4, 16, 64, kSanitized ? 256 : 4096}) {
    const double L = std::bit_width(static_cast<unsigned>(p - 1));
    EXPECT_EQ(sum_over(p, 64, plans), L * (message(64) + bytes(64) * kGamma) + L * message(64));
  }
}

}  // namespace
}  // namespace aisc::exact
