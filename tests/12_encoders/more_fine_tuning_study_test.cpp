// The study of what pre-training is worth, in small.
#include "12_encoders/more/fine_tuning_study.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/formats/some_documents.h"
#include "tests/nn/gpt_fixture.h"

namespace aisc {
namespace {

using ::testing::ElementsAre;

TuningSizes small_sizes() {
  return {.vocabulary = 400,
          .layers = 1,
          .width = 32,
          .context = 16,
          .pretraining_batch = 4,
          .batch = 4};
}

// Texts of tokens 100, 101, ... have label 0, those of 300, 301, ... label 1.
std::vector<LabelledTokens> two_kinds(std::int32_t count) {
  std::vector<LabelledTokens> texts;
  for (std::int32_t i = 0; i < count; ++i) {
    const std::int32_t first = i % 2 == 0 ? 100 : 300;
    texts.push_back({{first + i % 5, first + i % 3, first + i % 7}, i % 2});
  }
  return texts;
}

TEST(TuningStudyGiven, CountsStepsToAnAccuracy) {
  const std::vector<TuningPoint> points{{0, 0.1}, {20, 0.6}, {40, 0.5}, {60, 0.9}};
  EXPECT_EQ(steps_to(points, 0), 0);
  EXPECT_EQ(steps_to(points, 0.6), 20);
  EXPECT_EQ(steps_to(points, 0.7), 60);
  EXPECT_EQ(steps_to(points, 0.95), -1);
  EXPECT_EQ(best_accuracy(points), 0.9);
}

TEST(TuningStudy, PreTrainsAndGoesOn) {
  TestWorld world;
  const Documents documents(two_documents(), counted_tokens);
  const Pretraining done = pretrain(world.rank, small_sizes(), documents, 25, 1e-3, 1);
  EXPECT_EQ(done.points.size(), 10u);
  EXPECT_EQ(done.points.back().step, 25);
  EXPECT_LT(done.points.back().loss, done.points.front().loss);
  for (const PretrainedPoint& point : done.points) {
    EXPECT_GE(point.words, 0);
    EXPECT_LE(point.words, 1);
    EXPECT_NEAR(point.pairs, .5, .5);
  }
  EXPECT_EQ(done.weights.at("pooler.weight").size(), 32u * 32);
  const std::vector<LabelledTokens> training = two_kinds(20), held_out = two_kinds(40);
  TuningRun run{.labels = 2,
                .training = training,
                .held_out = held_out,
                .steps = 40,
                .look_every = 20,
                .rate = 3e-3};
  std::vector<TuningRun> runs(3, run);
  runs[0].pretrained = runs[1].pretrained = &done.weights;
  const auto all = run_tunings(small_sizes(), runs, 2);
  std::vector<std::int64_t> steps;
  for (const TuningPoint& point : all[0]) steps.push_back(point.step);
  EXPECT_THAT(steps, ElementsAre(0, 20, 40));
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(all[0][i].loss, all[1][i].loss) << "the same run, another thread";
    EXPECT_NE(all[0][i].loss, all[2][i].loss) << "another beginning";
  }
  EXPECT_EQ(all[0].back().accuracy, 1);
  EXPECT_EQ(all[2].back().accuracy, 1);
}

}  // namespace
}  // namespace aisc
