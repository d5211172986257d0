// Exercises 10.1 and 10.2 together: a trainer that follows the scale that its gradients bear.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "tests/10_model_compression/scaled_runs.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

using scaled_runs::scaled_parts;
using scaled_runs::Trained;

TEST(ScaledTraining, ASkippedStepLeavesEverythingAsItWas) {
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

TEST(ScaledTraining, GivesUpAtTheFloor) {
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
TEST(ScaledTraining, FindsTheScaleThatF16Bears) {
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

TEST(ScaledTraining, RunsResumeInTheMiddleOfAWindow) {
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
