// Dice as a router: counted against two formulas.
#include "08_moe/more/uniform_drops.h"

#include <gtest/gtest.h>

#include <cmath>

namespace aisc {
namespace {

// 2 tokens, 2 experts with room for one: half of the time both want the same.
TEST(UniformDrops, AreByHand) {
  EXPECT_DOUBLE_EQ(uniform_dropped_share(1, 2), 0.25);
  EXPECT_DOUBLE_EQ(uniform_dropped_share(1), std::exp(-1.0));
  EXPECT_NEAR(uniform_dropped_share(8), 0.140, 5e-4);
  EXPECT_NEAR(uniform_dropped_share(256), 0.025, 5e-4);
}

TEST(UniformDrops, AreWhatIsCounted) {
  constexpr std::int64_t kExperts = 64, kTokens = 1 << 20;
  for (const std::int64_t C : {8, 32, 64, 128, 256}) {
    const std::int64_t samples = kTokens / (kExperts * C);
    const double counted = counted_dropped_share(C, kExperts, samples, 1);
    // An expert's excess over C has mean .4 sqrt C and deviation .58 sqrt C, near enough: of all
    // together 1.5 / sqrt(experts counted), of which three.
    const double sampling = 3 * 1.5 / std::sqrt(static_cast<double>(kExperts * samples));
    const double exact = uniform_dropped_share(C, kExperts), many = uniform_dropped_share(C);
    EXPECT_NEAR(counted / exact, 1, sampling) << C;
    // sqrt(1 - 1/E), but for terms of 1 / (C E).
    EXPECT_NEAR(exact / many, 1 - 0.5 / kExperts, 2e-4) << C;
    EXPECT_NEAR(many * std::sqrt(2 * std::acos(-1.0) * static_cast<double>(C)), 1, 0.011) << C;
  }
}

}  // namespace
}  // namespace aisc
