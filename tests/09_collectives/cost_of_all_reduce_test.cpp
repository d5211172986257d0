// The formulas of three all-reduces, against numbers worked out by hand and, for any number of
// ranks, against what a rank does in each step.
#include "09_collectives/choose.h"

#include <gtest/gtest.h>

#include <bit>

#include "tests/09_collectives/plan_costs.h"
#include "tests/support/drawn.h"

namespace aisc::exact {
namespace {

// a = 1 s, b = 1/4 s a byte, g = 1/16 s a byte.
const Network kByHand{.link = {1, 0.25}, .reduce_seconds_per_byte = 0.0625};

using plan_costs::expect_equal;

// 64 bytes on 4 ranks: 6 messages of 16 bytes, 6 (1 + 4) s, and 3 times 16 bytes added.
TEST(CostOfAllReduce, RingByHand) {
  expect_equal(ring_all_reduce_cost(4, 64, kByHand, {}), {.steps = 6,
                                                          .messages = 6,
                                                          .bytes = 96,
                                                          .added_bytes = 48,
                                                          .total_bytes = 384,
                                                          .seconds = 30 + 3});
}

// 4 ranks swap 64 bytes twice: 2 (1 + 16 + 4) s.
TEST(CostOfAllReduce, RecursiveDoublingByHand) {
  expect_equal(recursive_doubling_all_reduce_cost(4, 64, kByHand, {}), {.steps = 2,
                                                                        .messages = 2,
                                                                        .bytes = 128,
                                                                        .added_bytes = 128,
                                                                        .total_bytes = 512,
                                                                        .seconds = 42});
}

// 6 = 4 + 2 ranks: two give 64 bytes away, four swap twice, two are told. 4 (1 + 16) + 3 * 4 s.
TEST(CostOfAllReduce, RecursiveDoublingOfSixByHand) {
  expect_equal(recursive_doubling_all_reduce_cost(6, 64, kByHand, {}),
               {.steps = 4,
                .messages = 3,
                .bytes = 192,
                .added_bytes = 192,
                .total_bytes = 2 * 64 + 4 * 128 + 2 * 64,
                .seconds = 80});
}

// 4 ranks: 32, 16, 16, 32 bytes: 4 + 96/4 s, and 48 added.
TEST(CostOfAllReduce, RabenseifnerByHand) {
  expect_equal(rabenseifner_cost(4, 64, kByHand, {}), {.steps = 4,
                                                       .messages = 4,
                                                       .bytes = 96,
                                                       .added_bytes = 48,
                                                       .total_bytes = 384,
                                                       .seconds = 28 + 3});
}

// 5 = 4 + 1: 64 bytes before and after, which is 2 (1 + 16) s more, and 64 more added.
TEST(CostOfAllReduce, RabenseifnerOfFiveByHand) {
  expect_equal(rabenseifner_cost(5, 64, kByHand, {}), {.steps = 6,
                                                       .messages = 5,
                                                       .bytes = 160,
                                                       .added_bytes = 112,
                                                       .total_bytes = 512,
                                                       .seconds = 28 + 34 + 7});
}

TEST(CostOfAllReduce, IsNothingForOneRank) {
  for (const auto cost :
       {ring_all_reduce_cost, recursive_doubling_all_reduce_cost, rabenseifner_cost})
    expect_equal(cost(1, 4096, kByHand, {}), {});
}

struct Costs {
  Cost ring{}, doubling{}, halving{};
};
// Step by step, as one rank that is always busy does it, of n bytes, a multiple of p q.
Costs step_by_step(int p, int q, double n) {
  const auto step = [](Cost& cost, double sent, double added, double all_sent) {
    cost.steps += 1;
    cost.messages += 1;
    cost.bytes += sent;
    cost.added_bytes += added;
    cost.total_bytes += all_sent;
    cost.seconds += kAlpha + sent * kBeta + added * kGamma;
  };
  Costs costs;
  for (int s = 0; s < 2 * (p - 1); ++s) step(costs.ring, n / p, s < p - 1 ? n / p : 0, n);
  for (int d = 1; d < q; d *= 2) {
    step(costs.doubling, n, n, q * n);
    step(costs.halving, n * d / q, n * d / q, n * d);
    step(costs.halving, n * d / q, 0, n * d);
  }
  if (q < p)
    for (Cost* cost : {&costs.doubling, &costs.halving}) {
      step(*cost, n, n, (p - q) * n);  // in one of the two steps it sends, in the other it receives
      cost->steps += 1;
      cost->total_bytes += (p - q) * n;
      cost->seconds += kAlpha + n * kBeta;
    }
  return costs;
}

// The second time as many bytes as no plan can have, and seconds that cannot be exact.
TEST(CostOfAllReduce, AddsUpStepByStepForAnyNumberOfRanks) {
  for (int i = 0; i < 40; ++i) {
    const int p = i < 16 ? i + 2 : static_cast<int>(drawn("ranks of CostOfAllReduce", 18, 700)) + i;
    const int q = static_cast<int>(std::bit_floor(static_cast<unsigned>(p)));
    for (const double unit : {4096.0, 0x1p70}) {
      const double n = unit * p * q;
      SCOPED_TRACE(testing::Message() << p << " ranks, " << n << " bytes");
      const auto expect = [&](const Cost& found, Cost expected) {
        if (unit > 4096) expected.seconds = found.seconds;
        expect_equal(found, expected);
      };
      const Costs costs = step_by_step(p, q, n);
      expect(ring_all_reduce_cost(p, n, kFlat, {}), costs.ring);
      expect(recursive_doubling_all_reduce_cost(p, n, kFlat, {}), costs.doubling);
      expect(rabenseifner_cost(p, n, kFlat, {}), costs.halving);
    }
  }
}

}  // namespace
}  // namespace aisc::exact
