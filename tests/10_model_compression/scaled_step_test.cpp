// A step whose loss was scaled: its end, by hand, and a trainer that skips.
#include "10_model_compression/scaled_step.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/comm/host_values.h"
#include "common/comm/launch.h"
#include "tests/support/error_says.h"
#include "tests/train/recorded_end.h"
#include "tests/train/small_run.h"

namespace aisc {
namespace {

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
    double norm = 0;
    EXPECT_NO_THROW(norm = finish_in_order(end, 1)) << "a norm of " << bad << " is no error";
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

// Makes a gradient infinite in some steps.
class Overflows final : public LayerHook {
 public:
  Overflows(const Model& model, std::set<std::uint64_t> steps)
      : model_(model), steps_(std::move(steps)) {}
  void after_backward(std::size_t layer, const Pass& pass) override {
    const std::vector<Parameter*> all = model_.layers[layer]->parameters();
    if (all.empty() || !steps_.contains(pass.step) || !pass.last_micro_batch) return;
    const View grad = all[0]->grad();
    dispatch(grad.dtype(), [&](auto t) {
      grad.data<decltype(t)>()[0] = decltype(t)(std::numeric_limits<float>::infinity());
    });
  }

 private:
  const Model& model_;
  std::set<std::uint64_t> steps_;
};

StepParts scaled_parts(const LossScaleOptions& rule, const std::set<std::uint64_t>& bad = {}) {
  StepParts parts;
  parts.scale = [rule] { return scaled_step(rule); };
  parts.hooks.push_back([bad](const Rank&, const Model& model, Mesh*) {
    return std::make_unique<Overflows>(model, bad);
  });
  return parts;
}

struct Trained {
  TestWorld world;
  Trainer trainer;
  std::vector<std::uint8_t> text = words(500);
  BatchSampler data;
  Trained(const TrainConfig& config, StepParts parts)
      : trainer(world.rank, config, std::move(parts)),
        data(text, config.model.context, config.seed) {}
  std::vector<std::vector<double>> numbers() const {
    std::vector<std::vector<double>> all{to_doubles(trainer.parameters().values())};
    for (const Optimizer::State& state : trainer.optimizer().state())
      all.push_back(to_doubles(state.value));
    return all;
  }
};

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

TEST(ScaledTrainer, ASkippedStepLeavesEverythingAsItWas) {
  Trained run(small_config(DType::F64),
              scaled_parts({.initial = 64, .window = 2, .hysteresis = 2, .floor = 1}, {1, 2, 4}));
  std::vector<double> scales, rates;
  for (std::uint64_t i = 0; i < 8; ++i) {
    const auto before = run.numbers();
    const StepReport report = run.trainer.step(run.data);
    const bool bad = i == 1 || i == 2 || i == 4;
    EXPECT_EQ(report.skipped, bad) << "step " << i;
    EXPECT_EQ(std::isfinite(report.gradient_norm), !bad) << "step " << i;
    EXPECT_TRUE(std::isfinite(report.loss)) << "step " << i;
    EXPECT_EQ(run.numbers() == before, bad) << "step " << i << ": weights and moments";
    scales.push_back(report.scale);
    rates.push_back(report.learning_rate);
  }
  EXPECT_THAT(scales, ::testing::ElementsAre(64, 64, 64, 32, 32, 16, 16, 32));
  EXPECT_EQ(rates[2], rates[1]) << "the step after a skipped one has its learning rate";
  EXPECT_EQ(rates[3], rates[1]);
  EXPECT_GT(rates[4], rates[3]);
  EXPECT_EQ(rates[5], rates[4]);
  EXPECT_EQ(run.trainer.optimizer().steps(), 5) << "updates of the weights";
  EXPECT_EQ(run.trainer.samples_taken(), 8 * 4) << "the data goes on";
}

TEST(ScaledTrainer, GivesUpAtTheFloor) {
  std::set<std::uint64_t> all;
  for (std::uint64_t i = 0; i < 100; ++i) all.insert(i);
  Trained run(small_config(DType::F32), scaled_parts({.initial = 4, .floor = 1}, all));
  run.trainer.step(run.data);
  run.trainer.step(run.data);
  EXPECT_TRUE(error_says([&] { run.trainer.step(run.data); },
                         {"the gradients overflow though the loss scale is 1, its floor"}));
  for (const LossScaleOptions& rule : {pytorch_scale(), static_scale(8)}) {
    Trained other(small_config(DType::F32), scaled_parts(rule, all));
    for (std::int64_t i = 0; i + 1 < kMostSkipped; ++i) other.trainer.step(other.data);
    EXPECT_TRUE(error_says([&] { other.trainer.step(other.data); },
                           {fmt::format("{} steps in a row were skipped", kMostSkipped)}));
  }
}

// Where F16 ends: a loss factor of 2^20 makes its gradients infinite, and the rule finds the scale
// at which they are not.
TEST(ScaledTrainer, FindsTheScaleThatF16Bears) {
  Trained run(small_config(DType::F16), scaled_parts({.initial = 0x1p30, .window = 2000}));
  double first = 0, last = 0;
  int skipped = 0;
  for (int i = 0; i < 40; ++i) {
    const StepReport report = run.trainer.step(run.data);
    skipped += report.skipped ? 1 : 0;
    if (i == 0) first = report.loss;
    last = report.loss;
  }
  EXPECT_GE(skipped, 5);
  EXPECT_LT(skipped, 30);
  EXPECT_LT(last, first - 0.5) << "it learns once the scale is found";
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

TEST(ScaledTrainer, RunsResumeInTheMiddleOfAWindow) {
  const LossScaleOptions rule{.initial = 64, .window = 3, .hysteresis = 2, .floor = 1};
  const std::set<std::uint64_t> bad{1, 3, 6};
  Trained whole(small_config(DType::F64), scaled_parts(rule, bad));
  for (int i = 0; i < 4; ++i) whole.trainer.step(whole.data);
  Trained resumed(small_config(DType::F64), scaled_parts(rule, bad));
  const auto copy = [](ConstView from, View to) {
    std::copy_n(from.data<double>(), from.count(), to.data<double>());
  };
  copy(whole.trainer.parameters().values(), resumed.trainer.parameters().values());
  const auto from = whole.trainer.optimizer().state(), to = resumed.trainer.optimizer().state();
  for (std::size_t i = 0; i < from.size(); ++i) copy(from[i].value, to[i].value);
  resumed.trainer.scale()->restore(whole.trainer.scale()->state());
  resumed.trainer.resume(4, 16, whole.trainer.optimizer().steps());
  for (int i = 0; i < 5; ++i) {
    const StepReport one = whole.trainer.step(whole.data);
    const StepReport other = resumed.trainer.step(resumed.data);
    EXPECT_EQ(other.loss, one.loss) << "step " << 4 + i;
    EXPECT_EQ(other.scale, one.scale) << "step " << 4 + i;
    EXPECT_EQ(other.learning_rate, one.learning_rate) << "step " << 4 + i;
  }
  EXPECT_EQ(resumed.numbers(), whole.numbers());
}

}  // namespace
}  // namespace aisc
