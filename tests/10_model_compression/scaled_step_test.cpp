// A step whose loss was scaled: its end, by hand, and a trainer that skips.
#include "10_model_compression/scaled_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "common/comm/host_values.h"
#include "common/comm/launch.h"
#include "tests/10_model_compression/scaled_runs.h"
#include "tests/train/recorded_end.h"

namespace aisc {
namespace {

using scaled_runs::scaled_parts;
using scaled_runs::Trained;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

bool updates(const RecordedEnd& end) {
  return std::find(end.calls.begin(), end.calls.end(), "update") != end.calls.end();
}

// Gradients 3 and 4 (of another rank), times 8: squares 576 and 1024.
TEST(ScaledEnd, TheNormIsOfTrueGradients) {
  RecordedEnd scaled(576, 1024.0 / 64);
  UnscaledEnd end(scaled, 8);
  EXPECT_EQ(end.own_square(), 9)
      << "the square of a gradient 3, which is 24 under a scale of 8. Usual cause: "
      << "a square is divided by the square of the scale";
  EXPECT_EQ(finish_in_order(end, 0), 5) << "the norm of 3 here and 4 elsewhere, scale 8";
}

TEST(ScaledEnd, TheUpdateIsByTrueGradients) {
  const auto factor = [](double clip) {
    RecordedEnd scaled(576, 16);
    UnscaledEnd end(scaled, 8);
    finish_in_order(end, clip);
    return scaled.scale;
  };
  EXPECT_EQ(factor(0), 0.125) << "gradients 8 times too large are updated times this";
  EXPECT_NEAR(factor(2.5), 0.0625, 1e-7)
      << "a norm of 5 clipped to 2.5, scale 8: half of an eighth. Usual cause: a norm of scaled "
         "gradients was clipped";
}

TEST(ScaledEnd, AStepThatOverflowsIsSkipped) {
  for (const double bad : {kInfinity, std::numeric_limits<double>::quiet_NaN()}) {
    RecordedEnd scaled(1, bad);
    UnscaledEnd end(scaled, 8);
    const double norm = finish_in_order(end, 1);  // a norm that is not finite is no error
    EXPECT_FALSE(std::isfinite(norm)) << "the norm that is returned tells of the overflow";
    EXPECT_TRUE(end.skipped()) << "the norm is " << bad;
    EXPECT_FALSE(updates(scaled)) << "the norm is " << bad << ", and weights were moved";
  }
  RecordedEnd scaled(1, 1);
  UnscaledEnd end(scaled, 8);
  finish_in_order(end, 1);
  EXPECT_FALSE(end.skipped()) << "a norm of sqrt(2) / 8 is no overflow";
  EXPECT_TRUE(updates(scaled));
}

// Rank 1 alone has gradients that overflow, the norm is of all.
TEST(ScaledEnd, AllRanksSkipTogether) {
  launch({.ranks = 3, .timeout_seconds = 60, .bind = false}, [](const Rank& rank) {
    const int self = rank.world.rank();
    RecordedEnd scaled(self == 1 ? kInfinity : 1,
                       [&](double own) { return sum_of_all(rank.world, own); });
    UnscaledEnd end(scaled, 8);
    finish_in_order(end, 1);
    EXPECT_TRUE(end.skipped()) << "rank " << self
                               << " of 3 did not skip; rank 1's gradients overflow. Usual cause: a "
                                  "rank decides by what it alone knows";
    EXPECT_FALSE(updates(scaled)) << "rank " << self << " moved its weights; rank 1 overflows";
  });
}

// ---- a trainer ----------------------------------------------------------------------------------

// A power of two changes no bit of F64 but exponents.
TEST(ScaledTrainer, GoesAsWithoutAScale) {
  const TrainConfig config = small_config(DType::F64);
  Trained plain(config, {}), scaled(config, scaled_parts(static_scale(1024)));
  for (int i = 0; i < 4; ++i) {
    const StepReport one = plain.trainer.step(plain.data), other = scaled.trainer.step(scaled.data);
    EXPECT_EQ(other.loss, one.loss);
    EXPECT_EQ(other.gradient_norm, one.gradient_norm) << "the norm is of true gradients";
    EXPECT_EQ(other.scale, 1024);
  }
  EXPECT_EQ(scaled.numbers(), plain.numbers());
}

// Gradients below 2^-25 are 0 in F16 unless they are scaled: a loss times 2^-20 learns nothing.
TEST(ScaledTrainer, SmallGradientsSurviveInF16) {
  const auto last_loss = [](double scale) {
    TrainConfig config = small_config(DType::F16);
    config.clip = 0;
    Trained run(config, scaled_parts(static_scale(scale)));
    double loss = 0;
    for (int i = 0; i < 20; ++i) loss = run.trainer.step(run.data).loss;
    return loss;
  };
  const double good = last_loss(1024), lost = last_loss(0x1p-24);
  EXPECT_LT(good, lost - 0.3) << "scale 1024 and 2^-24";
}

}  // namespace
}  // namespace aisc
