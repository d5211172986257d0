// The mixture of 1991: its gradients by differences, four experts that divide four pieces, the
// switch that draws one.
#include "08_moe/more/local_experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "common/core/range.h"

namespace aisc {
namespace {

constexpr MixtureLoss kMixtureLosses[] = {MixtureLoss::Cooperative, MixtureLoss::Competitive};

// One point, two experts that answer 0 and 3 with gates 1/2; 1 is wanted.
TEST(LocalExperts, LossesAreByHand) {
  LocalExperts experts(2, 1, 1);
  experts.weights() = {0, 0, 0, 3, 0, 0, 0, 0};
  const Points point{.inputs = 1, .x = {5}, .d = {1}, .piece = {0}};
  const auto cooperative = experts.judge(point, MixtureLoss::Cooperative);
  EXPECT_DOUBLE_EQ(cooperative.loss, 0.25);  // together they answer 1.5
  EXPECT_DOUBLE_EQ(cooperative.gradient[1], 0.5) << "the better one is moved as far as the worse";
  EXPECT_DOUBLE_EQ(cooperative.gradient[3], 0.5);
  const auto competitive = experts.judge(point, MixtureLoss::Competitive);
  const double near = std::exp(-0.5), far = std::exp(-2.0);
  EXPECT_DOUBLE_EQ(competitive.loss, -std::log((near + far) / 2));
  EXPECT_DOUBLE_EQ(competitive.gradient[1], -near / (near + far));
  EXPECT_DOUBLE_EQ(competitive.gradient[3], 2 * far / (near + far));
}

TEST(LocalExperts, GradientsAreSlopes) {
  const Points points = four_quadrants(40, 3);
  for (const MixtureLoss loss : kMixtureLosses) {
    LocalExperts experts(4, 2, 7);
    experts.train(points, loss, 20, 0.05);
    const std::vector<double> gradient = experts.judge(points, loss).gradient;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      constexpr double kStep = 1e-5, kTolerance = 1e-8;  // of losses of order 10: rounding 1e-10
      double& weight = experts.weights()[i];
      const double before = weight;
      weight = before + kStep;
      const double above = experts.judge(points, loss).loss;
      weight = before - kStep;
      const double below = experts.judge(points, loss).loss;
      weight = before;
      EXPECT_NEAR(gradient[i], (above - below) / (2 * kStep), kTolerance) << i;
    }
  }
}

// Where every exponential rounds to 0 the loss is still that of its formula, and has a slope.
TEST(LocalExperts, FarOffIsNoDivisionByZero) {
  LocalExperts experts(2, 1, 1);
  experts.weights() = {0, 0, 0, 100, 0, 0, 0, 0};
  const Points point{.inputs = 1, .x = {0}, .d = {200}, .piece = {0}};
  const auto judged = experts.judge(point, MixtureLoss::Competitive);
  EXPECT_DOUBLE_EQ(judged.loss, 5000 + std::log(2.0));
  EXPECT_DOUBLE_EQ(judged.gradient[3], -100);
}

TEST(LocalExperts, FourDivideFourPieces) {
  constexpr int kSeeds = 4;
  double cooperative = 0;
  for (int seed = 1; seed <= kSeeds; ++seed) {
    const Points points = four_quadrants(200, static_cast<std::uint64_t>(seed));
    const auto trained = [&](MixtureLoss loss, double rate) {
      LocalExperts experts(4, 2, static_cast<std::uint64_t>(seed));
      experts.train(points, loss, 600, rate);
      return purity(experts, points);
    };
    EXPECT_GT(trained(MixtureLoss::Competitive, 2), 0.9) << "seed " << seed;
    cooperative += trained(MixtureLoss::Cooperative, 0.2) / kSeeds;
  }
  EXPECT_LT(cooperative, 0.8) << "who makes up for others does not specialise";
}

// Two pieces of one expert count once.
TEST(LocalExperts, PurityGivesEachPieceAnExpertOfItsOwn) {
  LocalExperts experts(4, 2, 1);
  const Points points = four_quadrants(400, 1);
  std::vector<double>& w = experts.weights();
  std::fill(w.begin(), w.end(), 0);
  const std::array<double, 12> signs{1, 1, 0, -1, 1, 0, 1, -1, 0, -1, -1, 0};  // of quadrant 0 to 3
  std::copy(signs.begin(), signs.end(), w.begin() + 12);
  EXPECT_EQ(purity(experts, points), 1);
  std::fill(w.begin() + 12, w.end(), 0);
  w[14] = 1;  // expert 0 for all
  EXPECT_LT(purity(experts, points), 0.35);
}

TEST(OneOf, IsDrawnByTheGates) {
  const std::vector<double> p{0.1, 0.6, 0, 0.3};
  const Philox random(1, "switch");
  constexpr std::int64_t kDraws = 20000;
  std::vector<double> share(4);
  for (std::int64_t i = 0; i < kDraws; ++i)
    share[index(one_of(p, random, static_cast<std::uint64_t>(i)))] += 1.0 / kDraws;
  for (std::size_t j = 0; j < p.size(); ++j)  // four standard deviations of a share of one half
    EXPECT_NEAR(share[j], p[j], 4 * 0.5 / std::sqrt(kDraws)) << j;
  EXPECT_EQ(share[2], 0);
  EXPECT_EQ(one_of(p, random, 17), one_of(p, Philox(1, "switch"), 17));
}

}  // namespace
}  // namespace aisc
