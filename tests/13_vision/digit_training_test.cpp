// The loop over digits on ranks, in stages and with experts: the losses of one rank.
#include "13_vision/digit_training.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <mutex>
#include <numeric>

#include "common/comm/launch.h"
#include "tests/support/late_comm.h"
#include "tests/support/message_of.h"

namespace aisc {
namespace {

// F32, whose sums ranks make in another order, over a few steps.
constexpr double kRounding = 2e-3;

const DigitData& digits() {
  static const DigitData data{draw_image_set(1, 0, 64), draw_image_set(1, 1000, 33)};
  return data;
}

struct Told {
  std::vector<double> losses;
  DigitsLearnt learnt;
};

Told told_by(int ranks, const DigitSteps& steps, const ClassifierConfig& config) {
  Told told;
  std::mutex mutex;
  launch(late(ranks), [&](const Rank& rank) {
    std::vector<double> losses;
    const DigitsLearnt learnt = train_digits(
        rank, config, steps, digits(), [&](std::int64_t, double loss) { losses.push_back(loss); });
    const std::lock_guard lock(mutex);
    if (!told.losses.empty()) {
      EXPECT_EQ(losses, told.losses) << "all ranks are told the same";
      EXPECT_EQ(learnt.right, told.learnt.right);
      EXPECT_EQ(learnt.load, told.learnt.load);
    }
    told = {losses, learnt};
  });
  return told;
}

const DigitSteps kFive{.steps = 5, .batch = 12, .micro_batches = 2};

std::int64_t choices_of(const DigitsLearnt& learnt) {
  return std::accumulate(learnt.load.begin(), learnt.load.end(), std::int64_t{0});
}

void expect_same(const Told& found, const Told& serial, const std::string& where) {
  ASSERT_EQ(found.losses.size(), serial.losses.size()) << where;
  for (std::size_t i = 0; i < serial.losses.size(); ++i)
    EXPECT_NEAR(found.losses[i], serial.losses[i], kRounding) << where << ", step " << i;
  EXPECT_EQ(found.learnt.parameters, serial.learnt.parameters) << where;
  // Two images may change sides, whose largest logits are nearly equal.
  EXPECT_NEAR(found.learnt.right, serial.learnt.right, 2.0 / 33) << where;
  EXPECT_EQ(choices_of(found.learnt), choices_of(serial.learnt)) << where;
}

TEST(GivenTraining, IsTheSameOnRanksAndInStages) {
  const ClassifierConfig config{.width = 4, .blocks = 2, .experts = 4};
  const Told serial = told_by(1, kFive, config);
  EXPECT_EQ(serial.losses.size(), 5u);
  EXPECT_EQ(choices_of(serial.learnt), 2 * 33 * 7 * 7)
      << "each place of each test image has two experts";
  for (const auto& [ranks, stages] : {std::pair{2, 1}, {2, 2}, {4, 2}, {4, 4}}) {
    DigitSteps steps = kFive;
    steps.stages = stages;
    expect_same(told_by(ranks, steps, config), serial,
                fmt::format("{} ranks in {} stages", ranks, stages));
  }
}

TEST(GivenTraining, SaysWhatCannotBeDivided) {
  const auto said = [](int ranks, const DigitSteps& steps) {
    return message_of([&] {
      launch({.ranks = ranks, .timeout_seconds = 5, .bind = false}, [&](const Rank& rank) {
        train_digits(rank, {.width = 2, .blocks = 1}, steps, digits());
      });
    });
  };
  EXPECT_NE(said(3, {.stages = 2}).find("3 ranks in 2 stages, expected a multiple"),
            std::string::npos);
  EXPECT_NE(said(2, {.batch = 3, .micro_batches = 2})
                .find("a batch of 3 for 2 ranks with 2 micro-batches each: expected 4 or more"),
            std::string::npos);
  EXPECT_NE(said(8, {.stages = 8}).find("8 stages of 5 layers, expected 1 to 5"),
            std::string::npos);
}

}  // namespace
}  // namespace aisc
