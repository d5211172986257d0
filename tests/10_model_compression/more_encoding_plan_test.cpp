// Keep, recompute, offload or keep encoded: by hand, against all plans, and against a device.
#include "10_model_compression/more/encoding_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include "common/model/emulated_device.h"
#include "tests/support/error_says.h"
#include "tests/support/toy_model.h"

namespace aisc {
namespace {

using enum Saving;

// Each computes 2 s and 4 s, and saves 100 bytes of which 10 are its input. Half of them are left
// when half a second was spent, and half a second more brings them back.
std::vector<LayerCost> like_layers(std::size_t count) {
  return std::vector<LayerCost>(count, {.forward_seconds = 2,
                                        .backward_seconds = 4,
                                        .copy_seconds = 3,
                                        .saved_bytes = 100,
                                        .input_bytes = 10,
                                        .moves = false});
}
std::vector<EncodingCost> in_half_the_bytes(std::size_t count) {
  return std::vector<EncodingCost>(count,
                                   {.encode_seconds = 0.5, .decode_seconds = 0.5, .bytes = 50});
}

TEST(EncodingPlan, WhatEachCosts) {
  const auto layers = like_layers(3);
  const auto encodings = in_half_the_bytes(3);
  const auto figures = [&](std::vector<Saving> choices, std::vector<bool> encoded) {
    const EncodingPlan plan = plan_of(layers, encodings, std::move(choices), std::move(encoded));
    return std::pair(plan.plan.seconds, plan.plan.peak_bytes);
  };
  const std::vector<Saving> keep{Keep, Keep, Keep};
  EXPECT_EQ(figures(keep, {false, false, false}), std::pair(18.0, std::int64_t{300}));
  EXPECT_EQ(figures(keep, {true, false, false}), std::pair(19.0, std::int64_t{250}))
      << "50 bytes of the first below the other two's 100 each";
  EXPECT_EQ(figures(keep, {true, true, false}), std::pair(20.0, std::int64_t{200}));
  EXPECT_EQ(figures(keep, {true, true, true}), std::pair(21.0, std::int64_t{200}))
      << "the last layer's are plain when the most is there: encoding them helps nobody";
  EXPECT_EQ(figures({Recompute, Keep, Keep}, {false, true, false}),
            std::pair(21.0, std::int64_t{160}));
}

TEST(EncodingPlan, ThreeLayersWithinABudget) {
  const auto layers = like_layers(3);
  const auto encodings = in_half_the_bytes(3);
  struct Case {
    std::int64_t limit;
    double seconds, of_three_ways;
    std::size_t encoded;
  };
  for (const Case& c : {Case{300, 18, 18, 0},
                        {299, 19, 20, 1},
                        {250, 19, 20, 1},
                        {249, 20, 20, 2},
                        {205, 20, 22, 2},
                        {199, 21, 22, 1},
                        {159, 22, 22, 0}}) {
    const auto best = fastest_with_encoding(layers, encodings, c.limit);
    ASSERT_TRUE(best) << "within " << c.limit << " bytes";
    EXPECT_EQ(best->plan.seconds, c.seconds) << "within " << c.limit << " bytes";
    EXPECT_LE(best->plan.peak_bytes, c.limit);
    EXPECT_EQ(std::count(best->encoded.begin(), best->encoded.end(), true), c.encoded)
        << "layers encoded within " << c.limit << " bytes";
    EXPECT_EQ(fastest_within(layers, c.limit)->seconds, c.of_three_ways);
  }
  EXPECT_FALSE(fastest_with_encoding(layers, encodings, 119)) << "nothing keeps fewer than 120";
}

TEST(EncodingPlan, ACopyHidesBehindAnEncodingToo) {
  auto layers = like_layers(2);
  layers[0].moves = true;
  const auto encodings = in_half_the_bytes(2);
  // 3 s of copying beside 2 s of the next layer's forward, or 2.5 with its encoding.
  EXPECT_EQ(plan_of(layers, encodings, {Offload, Keep}, {false, false}).plan.seconds, 12 + 1);
  EXPECT_EQ(plan_of(layers, encodings, {Offload, Keep}, {false, true}).plan.seconds, 12 + 1 + 0.5);
}

// 4^5 plans of drawn layers.
TEST(EncodingPlan, IsTheQuickestOfAllPlans) {
  std::mt19937 random(7);
  const auto upto = [&](unsigned n) { return static_cast<std::int64_t>(random() % (n + 1)); };
  for (int round = 0; round < 6; ++round) {
    const std::size_t count = 5;
    std::vector<LayerCost> layers;
    std::vector<EncodingCost> encodings;
    for (std::size_t i = 0; i < count; ++i) {
      const std::int64_t saved = 20 + upto(80);
      layers.push_back({.forward_seconds = 1 + static_cast<double>(upto(5)),
                        .backward_seconds = 2 + static_cast<double>(upto(5)),
                        .copy_seconds = static_cast<double>(upto(9)),
                        .saved_bytes = saved,
                        .input_bytes = upto(10),
                        .stays_bytes = upto(5),
                        .recomputes = upto(4) > 0,
                        .moves = upto(2) > 0});
      encodings.push_back({.encode_seconds = 0.25 * static_cast<double>(upto(6)),
                           .decode_seconds = 0.25 * static_cast<double>(upto(6)),
                           .bytes = saved / 2,
                           .encodes = upto(4) > 0});
    }
    std::vector<EncodingPlan> all;
    for (std::size_t code = 0; code < 1024; ++code) {
      std::vector<Saving> choices;
      std::vector<bool> encoded;
      bool allowed = true;
      for (std::size_t i = 0; i < count; ++i) {
        const std::size_t way = code >> (2 * i) & 3;
        choices.push_back(way == 1 ? Recompute : way == 2 ? Offload : Keep);
        encoded.push_back(way == 3);
        allowed = allowed && (way != 1 || layers[i].recomputes) && (way != 2 || layers[i].moves) &&
                  (way != 3 || encodings[i].encodes);
      }
      if (allowed) all.push_back(plan_of(layers, encodings, choices, encoded));
    }
    for (std::int64_t limit = 40; limit < 400; limit += 23) {
      double seconds = std::numeric_limits<double>::infinity();
      for (const EncodingPlan& plan : all)
        if (plan.plan.peak_bytes <= limit) seconds = std::min(seconds, plan.plan.seconds);
      const auto found = fastest_with_encoding(layers, encodings, limit);
      ASSERT_EQ(found.has_value(), seconds < 1e9) << limit << " bytes";
      if (!found) continue;
      EXPECT_DOUBLE_EQ(found->plan.seconds, seconds) << limit << " bytes, round " << round;
      if (const auto three = fastest_within(layers, limit)) {
        EXPECT_LE(found->plan.seconds, three->seconds);
      }
    }
  }
}

TEST(EncodingPlan, CostsAreTheDevices) {
  const auto expect = [](SavedAs how, double encode, double decode, std::int64_t bytes) {
    const EncodingCost cost = encoding_cost(how, 4 * 1280, 4, 1000);
    EXPECT_DOUBLE_EQ(cost.encode_seconds, encode);
    EXPECT_DOUBLE_EQ(cost.decode_seconds, decode);
    EXPECT_EQ(cost.bytes, bytes);
    Machine machine = find_machine("limitless");
    machine.memory_bandwidth = 1000;
    launch(on_machine(machine, 1), [&](const Rank& rank) {
      const Model model = std::move(toy::Toy(rank, {{1}, {1}}).model);
      EncodedActivations hook(rank, model, how, {.least_bytes = 0});
      Saved saved;
      saved.push(random_tensor({10, 128}, DType::F32, rank.device, "x"));
      const double before = rank.clock.now();
      hook.after_forward(0, {}, saved);
      EXPECT_NEAR(rank.clock.now() - before, encode, 1e-9);
      EXPECT_EQ(saved.bytes(), bytes);
      const double between = rank.clock.now();
      hook.before_backward(0, {}, saved);
      EXPECT_NEAR(rank.clock.now() - between, decode, 1e-9);
    });
  };
  // 5120 bytes and 2560; for F8 twice 5120 and 1280, and back 1280 and 5120.
  expect(SavedAs::Bf16, 7.68, 7.68, 2560);
  expect(SavedAs::F16, 7.68, 7.68, 2560);
  expect(SavedAs::F8, 11.52, 6.4, 1280 + 40);
  EXPECT_FALSE(encoding_cost(SavedAs::F16, 1000, 2, 1000).encodes) << "16 bits already";
}

TEST(EncodingPlanGiven, SaysWhatDoesNotFit) {
  const auto layers = like_layers(2);
  EXPECT_TRUE(error_says([&] { fastest_with_encoding(layers, in_half_the_bytes(1), 1000); },
                         {"encoding plan: 2 layers, 1 encodings"}));
  EXPECT_TRUE(error_says(
      [&] {
        plan_of(layers, in_half_the_bytes(2), {Keep, Keep}, {true});
      },
      {"2 choices, 1 of them encoded or not"}));
  EXPECT_TRUE(error_says(
      [&] {
        plan_of(layers, in_half_the_bytes(2), {Keep, Recompute}, {false, true});
      },
      {"encoding plan: layer 1 is encoded, expected one that is kept"}));
  EXPECT_TRUE(error_says([] { encoding_cost(SavedAs::Lossless, 8, 4, 1); },
                         {"bytes of plain and lossless are the run's"}));
}

}  // namespace
}  // namespace aisc
