// The loss scale: PyTorch's and DeepSpeed's rules, by hand and against both written as they are
// published.
#include "10_model_compression/loss_scale.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "common/core/rng.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

using Scales = std::vector<double>;

// The scale of each step that follows those of `steps`, of which '-' overflows.
std::vector<double> scales(const LossScaleOptions& options, const std::string& steps) {
  LossScale scale(options);
  std::vector<double> values;
  for (const char step : steps) {
    scale.after(step == '-' ? LossScale::Step::Overflow : LossScale::Step::Good);
    values.push_back(scale.value());
  }
  return values;
}

constexpr const char* kAfterSteps = "the scale after each step, of which '-' overflows: ";

TEST(LossScale, IsHalvedByAnOverflow) {
  EXPECT_EQ(scales({.initial = 8, .window = 3}, "+-+-"), (Scales{8, 4, 4, 2}))
      << kAfterSteps << "+-+-, of 8, window 3";
}

TEST(LossScale, GrowsAfterSoManyGoodStepsInARow) {
  EXPECT_EQ(scales({.initial = 8, .window = 3}, "+++"), (Scales{8, 8, 16}))
      << kAfterSteps << "+++, of 8, window 3: it grows with the third good step";
  EXPECT_EQ(scales({.initial = 8, .window = 3}, "++-+++"), (Scales{8, 8, 4, 4, 4, 8}))
      << kAfterSteps << "++-+++, of 8, window 3: an overflow begins the count anew";
  EXPECT_EQ(scales({.initial = 8, .window = 2}, "+++++"), (Scales{8, 16, 16, 32, 32}))
      << kAfterSteps << "+++++, of 8, window 2: the count begins anew where it grew";
}

TEST(LossScale, OverflowsAreForgiven) {
  const LossScaleOptions two{.initial = 8, .window = 3, .hysteresis = 2};
  EXPECT_EQ(scales(two, "--"), (Scales{8, 4}))
      << kAfterSteps << "--, of 8, hysteresis 2: the first is forgiven";
  EXPECT_EQ(scales(two, "-+-"), (Scales{8, 8, 4}))
      << kAfterSteps
      << "-+-, of 8, hysteresis 2: a good step between them does not forgive another";
  EXPECT_EQ(scales(two, "--+++-"), (Scales{8, 4, 4, 4, 8, 8}))
      << kAfterSteps << "--+++-, of 8, window 3, hysteresis 2: where it grew one is forgiven again";
}

TEST(LossScale, StaysAboveItsFloor) {
  EXPECT_EQ(scales({.initial = 8, .window = 3, .floor = 3}, "----"), (Scales{4, 3, 3, 3}))
      << kAfterSteps << "----, of 8, floor 3";
}

TEST(LossScale, HasAGrowthAndABackOff) {
  EXPECT_EQ(scales({.initial = 8, .window = 1, .growth = 3, .back_off = 0.25}, "+-"),
            (Scales{24, 6}))
      << kAfterSteps << "+-, of 8, window 1, growth 3, back-off 0.25";
}

// torch.amp's rule: a tracker of good steps, which an overflow and growth make 0.
struct PytorchRule {
  double scale = 65536;
  int tracker = 0;
  void after(bool overflow) {
    if (overflow) {
      scale *= 0.5;
      tracker = 0;
    } else if (++tracker == 2000) {
      scale *= 2.0;
      tracker = 0;
    }
  }
};

// DeepSpeed's: by the distance from the last overflow, with hysteresis that growth refills.
struct DeepspeedRule {
  double scale = 65536;
  int iteration = 0, last_overflow = -1, hysteresis = 2;
  void after(bool overflow) {
    if (overflow) {
      if (hysteresis == 1)
        scale = std::max(scale / 2, 1.0);
      else
        --hysteresis;
      last_overflow = iteration;
    } else if ((iteration - last_overflow) % 1000 == 0) {
      hysteresis = 2;
      scale *= 2;
    }
    ++iteration;
  }
};

// Long runs without an overflow, short ones, and many overflows in a row.
template <class Rule>
void expect_rule(Rule rule, const LossScaleOptions& options, const char* name) {
  const Philox random(7, name);
  LossScale scale(options);
  for (std::uint64_t i = 0; i < 40'000; ++i) {
    const std::uint64_t one_in = i / 5000 % 2 == 0 ? 900 : i / 500 % 10 == 9 ? 2 : 3000;
    const bool overflow = random.below(i, one_in) == 0;
    rule.after(overflow);
    scale.after(overflow ? LossScale::Step::Overflow : LossScale::Step::Good);
    ASSERT_EQ(scale.value(), rule.scale) << "step " << i << " of " << name << "'s rule";
  }
}

TEST(LossScale, IsPytorchs) { expect_rule(PytorchRule(), pytorch_scale(), "PyTorch"); }
TEST(LossScale, IsDeepspeeds) { expect_rule(DeepspeedRule(), deepspeed_scale(), "DeepSpeed"); }

TEST(LossScaleGiven, DefaultsAreThePublishedOnes) {
  EXPECT_EQ(pytorch_scale(), (LossScaleOptions{65536, 2000, 1, 0, 2, 0.5}));
  EXPECT_EQ(deepspeed_scale(), (LossScaleOptions{65536, 1000, 2, 1, 2, 0.5}));
}

TEST(LossScaleGiven, AStaticOneStays) {
  EXPECT_EQ(scales(static_scale(128), "+-+++-"), (Scales{128, 128, 128, 128, 128, 128}));
  LossScale scale(static_scale(128));
  for (int i = 0; i < 3; ++i) scale.after(LossScale::Step::Overflow);
  EXPECT_EQ(scale.skipped(), 3);
  EXPECT_FALSE(scale.is_lowest());
}

TEST(LossScale, CountsWhatWasSkipped) {
  LossScale scale({.initial = 8, .window = 2});
  const auto counts = [&] {
    return std::vector<std::int64_t>{scale.skipped(), scale.skipped_in_a_row()};
  };
  for (const char step : std::string("+--+-"))
    scale.after(step == '-' ? LossScale::Step::Overflow : LossScale::Step::Good);
  EXPECT_EQ(counts(), (std::vector<std::int64_t>{3, 1}));
  scale.after(LossScale::Step::Good);
  EXPECT_EQ(counts(), (std::vector<std::int64_t>{3, 0}));
}

// In the middle of a window, with an overflow forgiven: from there on both go the same way.
TEST(LossScale, GoesOnFromWhatACheckpointKeeps) {
  const LossScaleOptions options{.initial = 64, .window = 4, .hysteresis = 2, .floor = 1};
  const std::string steps = "++-++++--+++++-+-----++++";
  for (std::size_t cut = 0; cut <= steps.size(); ++cut) {
    LossScale whole(options), first(options), second(options);
    const auto go = [&](LossScale& scale, std::size_t begin, std::size_t end) {
      for (std::size_t i = begin; i < end; ++i)
        scale.after(steps[i] == '-' ? LossScale::Step::Overflow : LossScale::Step::Good);
    };
    go(whole, 0, steps.size());
    go(first, 0, cut);
    second.restore(first.state());
    go(second, cut, steps.size());
    EXPECT_EQ(second.state(), whole.state()) << "saved after " << cut << " steps";
  }
}

TEST(LossScaleGiven, RefusesWhatMakesNoSense) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const auto refuses = [](const LossScaleOptions& options, const char* text) {
    EXPECT_TRUE(error_says([&] { LossScale scale(options); }, {text}));
  };
  refuses({.initial = 0}, "loss scale: the first value is 0, expected more than 0");
  refuses({.initial = nan}, "loss scale: the first value is nan, expected more than 0");
  refuses({.window = -1}, "loss scale: the window is -1, expected 0 or more steps");
  refuses({.hysteresis = 0}, "loss scale: the hysteresis is 0, expected 1 or more overflows");
  refuses({.initial = 2, .floor = 4}, "loss scale: the floor is 4, expected 0 up to the first");
  refuses({.growth = 1}, "loss scale: the growth is 1, expected more than 1");
  refuses({.back_off = 1}, "loss scale: the back-off is 1, expected between 0 and 1");
  LossScale scale({});
  const auto restores = [&](const std::vector<double>& state, const char* text) {
    EXPECT_TRUE(error_says([&] { scale.restore(state); }, {text}));
  };
  restores({1}, "loss scale: 1 numbers of its state, expected 5");
  restores({0, 0, 0, 0, 0}, "loss scale: the saved value is 0, expected more than 0");
  restores({1, 0.5, 0, 0, 0}, "loss scale: a saved count is 0.5, expected a whole number");
  EXPECT_EQ(scale.value(), 65536) << "what was refused changed it";
}

}  // namespace
}  // namespace aisc
