// The end of a step: what it calls in which order, and, on ranks that run, the weights that it
// leaves.
#include "11_gpt_3d/step_order.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "common/comm/launch.h"
#include "tests/11_gpt_3d/counted_places.h"
#include "tests/11_gpt_3d/toy_mesh.h"
#include "tests/support/message_of.h"
#include "tests/support/numbers.h"
#include "tests/train/recorded_end.h"

namespace aisc {
namespace {

// In F64, of sums in another order.
constexpr double kRounding = 1e-10;

using Names = std::vector<std::string>;
const Names kOrder{"sum_over_tensor_ranks", "sum_over_data_ranks",
                   "sum_tied_tables",       "own_square",
                   "sum_over_world",        "update",
                   "gather_weights"};

bool has(const RecordedEnd& step, const char* call) {
  return std::find(step.calls.begin(), step.calls.end(), call) != step.calls.end();
}

std::string text_of(const Names& calls) { return fmt::format("{}", fmt::join(calls, ", ")); }

// What goes wrong with calls in this order.
std::string usual_cause(const Names& calls) {
  const auto place = [&](const char* name) {
    return std::find(calls.begin(), calls.end(), name) - calls.begin();
  };
  for (const std::string& name : kOrder) {
    const auto times = std::count(calls.begin(), calls.end(), name);
    if (times == 0) return name + " is missing";
    if (times > 1) return name + " is there more than once";
  }
  if (place("sum_over_tensor_ranks") > place("sum_over_data_ranks"))
    return "what tensor ranks sum after the gradients were scattered is in no shard";
  if (place("sum_tied_tables") < place("sum_over_data_ranks"))
    return "the tied tables' shards were summed before the data ranks' sums were in them";
  if (place("own_square") < place("sum_tied_tables"))
    return "the norm was taken while gradients were not yet whole";
  if (place("update") < place("sum_over_world"))
    return "weights moved before the norm of all gradients was there to clip them";
  if (place("gather_weights") < place("update")) return "the old weights were gathered";
  return "the order of step_order.h's StepEnd";
}

void expect_all_calls(const RecordedEnd& step) {
  EXPECT_EQ(step.calls, kOrder) << "the step called " << text_of(step.calls) << "; expected "
                                << text_of(kOrder) << ". Usual cause: " << usual_cause(step.calls);
}

// This rank counts 9, the others 16: the norm is 5, and 1/5 is what clipping to 1 leaves.
TEST(StepOrder, ByHand) {
  RecordedEnd step(9, 16);
  const double norm = finish_step(step, 1);
  expect_all_calls(step);
  EXPECT_EQ(step.summed, 9) << "what was summed over the world; expected this rank's own square";
  EXPECT_EQ(norm, 5) << "the norm of 9 + 16. Usual cause: "
                     << (norm == 25  ? "the square was returned"
                         : norm == 3 ? "the norm of this rank's gradients alone"
                                     : "the square root of the sum, before clipping");
  EXPECT_NEAR(step.scale, 0.2, 1e-6)
      << "gradients are updated times this. Usual cause: "
      << (step.scale == 1 ? "nothing was clipped"
                          : "clip_factor() of the norm of the world, not of its square nor of this "
                            "rank's part");
}

TEST(StepOrder, ClipsOnlyWhatIsLonger) {
  const auto scale = [](double clip) {
    RecordedEnd step(9, 16);
    EXPECT_EQ(finish_step(step, clip), 5) << "the norm before clipping to " << clip;
    expect_all_calls(step);
    return step.scale;
  };
  EXPECT_EQ(scale(0), 1) << "clip 0: nothing is clipped";
  EXPECT_EQ(scale(100), 1) << "clip 100: a norm of 5 is within it";
  EXPECT_EQ(scale(2.5), 2.5 / (5 + 1e-6)) << "clip 2.5: as clip_factor() has it";
  EXPECT_EQ(message_of([] {
              RecordedEnd step(9, 16);
              finish_step(step, -1);
            }),
            "clip: max_norm is -1.000000, expected >= 0");
}

TEST(StepOrder, WithoutAFiniteNormNothingMoves) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), infinity})
    for (const double clip : {0.0, 1.0})
      for (const bool is_own : {true, false}) {
        RecordedEnd step(is_own ? bad : 1, is_own ? 1 : bad);
        const std::string where =
            fmt::format("{} is {}, clip {}",
                        is_own ? "this rank's square" : "another rank's square", bad, clip);
        const std::string message = message_of([&] { finish_step(step, clip); });
        EXPECT_THAT(message, ::testing::HasSubstr("norm"))
            << where << ": expected an Error that names the norm, found '" << message << "'";
        EXPECT_FALSE(has(step, "update")) << where << ": the weights were moved all the same";
        EXPECT_FALSE(has(step, "gather_weights")) << where << ": weights were gathered";
        EXPECT_TRUE(has(step, "sum_over_world"))
            << where << ": this rank threw by its own square; the others wait in the sum";
      }
}

// Rank 2 alone has a NaN; the sum is a real one.
TEST(StepOrder, WhatIsNotFiniteOnOneRankIsAnErrorOnAll) {
  launch({.ranks = 4, .timeout_seconds = 5, .bind = false}, [](const Rank& rank) {
    const int self = rank.world.rank();
    RecordedEnd step(self == 2 ? std::numeric_limits<double>::quiet_NaN() : 1,
                     [&](double own) { return sum_of_all(rank.world, own); });
    const std::string message = message_of([&] { finish_step(step, 1); });
    EXPECT_THAT(message, ::testing::HasSubstr("the norm of the gradients is nan"))
        << "rank " << self << " of 4, rank 2 has a NaN: expected an Error of the norm, found '"
        << message << "'. Usual cause: a rank decides by what it alone knows";
    EXPECT_FALSE(has(step, "update")) << "rank " << self << " moved its weights";
  });
}

void expect_serial_weights(const MeshShape& shape, toy_mesh::Shards shards, double clip) {
  constexpr int kSteps = 3;
  std::vector<toy_mesh::Whole> serial = toy_mesh::make_model(shape);
  std::vector<double> norms;
  for (int i = 0; i < kSteps; ++i) norms.push_back(toy_mesh::serial_step(serial, shape, clip));
  launch({.ranks = shape.ranks(), .timeout_seconds = 10, .bind = false}, [&](const Rank& rank) {
    const std::string where = fmt::format("{}{}, clip {}, rank {}: ", text_of(shape),
                                          shards == toy_mesh::Shards::None ? "" : " with shards",
                                          clip, rank.world.rank());
    toy_mesh::RankStep step(rank, shape, shards);
    for (int i = 0; i < kSteps; ++i) {
      step.backward();
      const double norm = finish_step(step, clip), expected = norms[static_cast<std::size_t>(i)];
      EXPECT_NEAR(norm, expected, kRounding)
          << where << "the norm of step " << i
          << " is not that of one rank. Usual cause: gradients "
          << "were not whole yet, or weights of the step before are not";
    }
    for (const toy_mesh::RankStep::Held& h : step.held())
      for (const toy_mesh::Whole& whole : serial) {
        if (whole.name != h.whole.name) continue;
        const auto first = whole.weight.begin() + h.begin;
        const std::vector<double> expected(first, first + h.weight.count());
        EXPECT_TRUE(numbers_are(where + whole.name, h.weight, expected, {}, kRounding));
      }
  });
}

TEST(StepOrder, LeavesWhatOneRankLeaves) {
  const MeshShape shapes[] = {
      {.dp = 2, .pp = 2, .tp = 2}, {.dp = 3, .tp = 2}, {.dp = 2, .pp = 3}, {}};
  for (const MeshShape& shape : shapes)
    for (const auto shards : {toy_mesh::Shards::None, toy_mesh::Shards::OfDataRanks})
      for (const double clip : {0.0, 0.5}) expect_serial_weights(shape, shards, clip);
}

}  // namespace
}  // namespace aisc
