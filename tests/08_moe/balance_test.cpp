// Losses of routers: their values where routing is even and where it is not, and their slopes.
#include "08_moe/balance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/support/gradient_check.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

// Even shares and even probabilities: the factor itself, whatever the number of experts.
TEST(Balance, IsItsFactorWhereRoutingIsUniform) {
  CpuDevice device;
  for (const std::int64_t E : {2, 4, 8}) {
    const Tensor scores = Tensor::zeros({2, 8, E}, DType::F64, device);
    const std::vector<double> even(index(2 * E), 1.0 / static_cast<double>(E));
    EXPECT_NEAR(RouterLosses{.balance = 0.01}.sum(scores, even), 2 * 8 * 0.01, 1e-15)
        << E << " experts, all even: the factor .01 for each of 16 tokens";
  }
}

// All choose expert 0 of 4, with all of the probability: four times as much.
TEST(Balance, IsTheNumberOfExpertsTimesAsMuchForOne) {
  CpuDevice device;
  Tensor scores = Tensor::zeros({1, 8, 4}, DType::F64, device);
  for (int t = 0; t < 8; ++t) scores.data<double>()[4 * t] = 100;
  EXPECT_NEAR(RouterLosses{.balance = 0.01}.sum(scores, {1, 0, 0, 0}), 8 * 4 * 0.01, 1e-15);
}

// Two samples that each choose one expert are not balanced by one another.
TEST(Balance, IsOfEachSampleAlone) {
  CpuDevice device;
  Tensor scores = Tensor::zeros({2, 4, 2}, DType::F64, device);
  for (int t = 0; t < 4; ++t) scores.data<double>()[2 * t] = scores.data<double>()[9 + 2 * t] = 100;
  EXPECT_NEAR(RouterLosses{.balance = 0.5}.sum(scores, {1, 0, 0, 1}), 2 * 4 * 2 * 0.5, 1e-12);
}

TEST(Balance, MovesTheProbabilitiesAlone) {
  CpuDevice device;
  const Tensor scores = random_tensor({3, 5, 4}, DType::F64, device, "scores");
  const std::vector<double> first{0.6, 0.4, 0, 0, 0.2, 0.2, 0.2, 0.4, 0, 1, 0, 0};
  for (const RouterLosses& losses : {RouterLosses{.balance = 0.3}, RouterLosses{.z_loss = 0.2},
                                     RouterLosses{.balance = 0.3, .z_loss = 0.2}}) {
    const Tensor d = losses.gradient(scores, first, 0.7);
    EXPECT_TRUE(check_gradient([&] { return 0.7 * losses.sum(scores, first); }, scores, d));
  }
}

// Log-sum-exps of log 2 and log 8.
TEST(BalanceGiven, ZLossIsTheSquareOfTheLogSumExp) {
  CpuDevice device;
  const double log4 = std::log(4.0);
  const Tensor scores = from_doubles({0, 0, log4, log4}, {1, 2, 2}, DType::F64, device);
  const double a = std::log(2.0), b = std::log(8.0);
  EXPECT_NEAR(RouterLosses{.z_loss = 0.1}.sum(scores, {1, 0}), 0.1 * (a * a + b * b), 1e-15);
}

TEST(BalanceGiven, CountsFirstChoices) {
  EXPECT_EQ(first_choices(std::vector<std::int32_t>{0, 1, 2, 1, 2, 0, 2, 1}, 2, 2, 3),
            (std::vector<double>{0.5, 0, 0.5, 0, 0, 1}));
  EXPECT_EQ(first_choices({}, 0, 2, 3), std::vector<double>());
}

}  // namespace
}  // namespace aisc
