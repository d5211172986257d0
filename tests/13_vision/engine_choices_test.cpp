// What an engine needs, and which of those that fit is the quickest.
#include "13_vision/engine_choices.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "04_sharding/sharded_units.h"
#include "common/train/engine.h"
#include "tests/13_vision/small_images.h"
#include "tests/support/drawn.h"
#include "tests/support/late_comm.h"
#include "tests/support/message_of.h"

namespace aisc {
namespace {

// 100 weights on 4 ranks: 400 bytes of weights, 400 of gradients, 800 of moments, whole or a
// quarter.
TEST(StateBytes, ByHand) {
  struct Row {
    int zero;
    double weights, gradients, moments;
  };
  for (const Row& row : {Row{0, 400, 400, 800}, Row{1, 400, 400, 200}, Row{2, 400, 100, 200},
                         Row{3, 100, 100, 200}}) {
    const StateBytes bytes = state_bytes(100, row.zero, 4);
    EXPECT_EQ(bytes.weights, row.weights) << "ZeRO " << row.zero;
    EXPECT_EQ(bytes.gradients, row.gradients) << "ZeRO " << row.zero;
    EXPECT_EQ(bytes.moments, row.moments) << "ZeRO " << row.zero << ": two numbers a weight";
    EXPECT_EQ(state_bytes(100, row.zero, 1).all(), 1600) << "one rank has all, ZeRO or not";
  }
}

// Three layers, each from 64 columns to 64: large beside what pads them.
Model three_layers(const Rank& rank) {
  Model model;
  for (const std::int64_t i : {0, 1, 2})
    model.layers.push_back(std::make_unique<Linear>(rank, fmt::format("layer {}", i), 64, 64));
  model.loss = std::make_unique<CrossEntropy>(rank, 64);
  return model;
}

// The books of engines say the same, but for what pads parameters and units.
TEST(StateBytes, AreThoseInTheBooksOfAnEngine) {
  for (const int ranks : {1, 2, 3})
    for (const int zero : {0, 1, 2, 3})
      launch({.ranks = ranks, .bind = false}, [&](const Rank& rank) {
        TrainConfig config;
        config.batch = ranks;
        const Engine engine(rank, three_layers(rank), config,
                            zero > 0 ? sharded({.stage = zero}) : StepParts{});
        constexpr std::int64_t kWeights = 3 * (64 * 64 + 64);
        constexpr double kPadding = 0.05;  // about 1 KB of at least 17
        ASSERT_EQ(engine.parameters().parameter_count(), kWeights);
        const StateBytes bytes = state_bytes(kWeights, zero, ranks);
        const std::string where = fmt::format("ZeRO {} on {} ranks", zero, ranks);
        const auto is_live = [&](Purpose purpose, double expected) {
          const auto live = static_cast<double>(rank.device.ledger()[purpose].live_bytes);
          EXPECT_NEAR(live, expected, kPadding * expected) << where;
        };
        is_live(Purpose::Parameters, bytes.weights);
        is_live(Purpose::Gradients, bytes.gradients);
        is_live(Purpose::Optimizer, bytes.moments);
      });
}

TEST(EngineChoices, AreAllThatDivideTheBatch) {
  const auto all = engine_choices({.batch = 12, .ranks = 2, .parameters = 100, .limit = 1e9});
  ASSERT_EQ(all.size(), 8u) << "four stages of ZeRO with 1 and 2 micro-batches; 4 do not divide 6";
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].zero, static_cast<int>(i / 2));
    EXPECT_EQ(all[i].micro_batches, static_cast<std::int64_t>(1 + i % 2));
    EXPECT_EQ(all[i].dropped, "");
  }
  const auto alone = engine_choices({.batch = 8, .ranks = 1, .parameters = 100, .limit = 1e9});
  ASSERT_EQ(alone.size(), 4u) << "one rank has nothing to divide: 1, 2, 4 and 8 micro-batches";
  EXPECT_EQ(alone.back().zero, 0);
  EXPECT_EQ(alone.back().micro_batches, 8);
}

// 1 million weights: 16 MB of state, or 4 on 4 ranks in stage 3; 16 images a rank of 1 MB each.
TEST(EngineChoices, CountStateAndTheImagesOfAMicroBatch) {
  const EngineSpace space{
      .batch = 64, .ranks = 4, .parameters = 1'000'000, .image_bytes = 1e6, .limit = 12e6};
  const auto all = engine_choices(space);
  ASSERT_EQ(all.size(), 20u);
  for (const EngineChoice& choice : all) {
    const double state[] = {16e6, 10e6, 7e6, 4e6};
    const double expected = state[choice.zero] + 16e6 / static_cast<double>(choice.micro_batches);
    const std::string where =
        fmt::format("ZeRO {}, {} micro-batches", choice.zero, choice.micro_batches);
    EXPECT_EQ(choice.bytes, expected) << where;
    EXPECT_EQ(choice.dropped.empty(), expected <= 12e6) << where;
  }
  EXPECT_EQ(all.front().dropped, "32.00 MB needed, 12.00 MB are there");
}

TEST(EngineChoices, WhatFitsExactlyFits) {
  const auto all = engine_choices({.batch = 1, .parameters = 10, .image_bytes = 5, .limit = 165});
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].dropped, "") << "165 bytes needed, 165 there";
}

TEST(GivenChoices, SayThatRanksDivideTheBatch) {
  for (const auto& [batch, ranks] : {std::pair{63, 2}, {0, 1}, {4, 0}})
    EXPECT_EQ(message_of([&, b = batch, r = ranks] { engine_choices({.batch = b, .ranks = r}); }),
              fmt::format("engine choices: a batch of {} on {} ranks, expected a multiple", batch,
                          ranks));
}

TEST(GivenChoices, TheQuickestIsFirstAndWhatWasDroppedLast) {
  std::vector<EngineChoice> choices(5);
  for (std::size_t i = 0; i < 5; ++i) choices[i].micro_batches = static_cast<std::int64_t>(i);
  choices[1].dropped = "too large";
  std::vector<std::int64_t> asked;
  const auto found = measured(choices, 4, [&](const EngineChoice& choice, std::int64_t) {
    asked.push_back(choice.micro_batches);
    if (choice.micro_batches == 3) fail("broken");
    return choice.micro_batches == 4 ? 0.5 : 1.0 + static_cast<double>(choice.micro_batches);
  });
  ASSERT_EQ(found.size(), 5u);
  EXPECT_EQ(found[0].micro_batches, 4);
  EXPECT_EQ(found[0].seconds, 0.5);
  EXPECT_EQ(found[3].dropped, "broken");
  EXPECT_EQ(found[4].dropped, "too large");
  EXPECT_EQ(std::count(asked.begin(), asked.end(), 1), 0) << "what does not fit is not measured";
  EXPECT_EQ(measured({choices[1]}, 4, {}).size(), 1u) << "nothing fits: nothing is measured";
}

TEST(GivenChoices, SavedBytesAreOfAnImageAndMoveNoStatistics) {
  TestWorld world;
  const Model model = small_images_model(world.rank, ImageNorm::Batch, *world.comm);
  ParameterStore store(world.device, make_units(model),
                       {.value_dtype = DType::F64, .grad_dtype = DType::F64});
  store.initialize(1);
  const ImageBatch four = small_images(world.rank, 0, 0, 4);
  const double each = saved_bytes(model, four.images);
  EXPECT_GT(each, 8.0 * 3 * kRows * kColumns) << "at least what the stem makes of it";
  // Statistics of a channel are kept once, whatever the images.
  EXPECT_NEAR(saved_bytes(model, small_images(world.rank, 0, 0, 2).images), each, 0.05 * each);
  EXPECT_EQ(message_of([&] { state_bytes(1, 4, 1); }),
            "state bytes: ZeRO 4 on 1 ranks, expected 0 to 3 on 1 or more");
}

}  // namespace
}  // namespace aisc
