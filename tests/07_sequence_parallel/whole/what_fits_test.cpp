// What fits: bisection, a stage's bytes against the published formulas, and that sharing tokens
// goes on where sharing layers ends.
#include "07_sequence_parallel/more/what_fits.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/drawn.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

TEST(LargestThatFits, IsTheLastThatDoes) {
  for (const std::int64_t most :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{2}, std::int64_t{3}, std::int64_t{7},
        std::int64_t{8}, drawn("the largest that fits", 9, 1'000'000'000)}) {
    int questions = 0;
    EXPECT_EQ(largest_that_fits([&](std::int64_t n) {
                ++questions;
                EXPECT_GE(n, 1);
                return n <= most;
              }),
              most);
    EXPECT_LE(questions, 62) << "twice the logarithm, for " << most;
  }
  EXPECT_TRUE(error_says([] { largest_that_fits([](std::int64_t) { return true; }); },
                         {"largest_that_fits: 2^40 fits, expected a limit"}));
}

// (s b h L/t) (34 + 5 a s/h) and the other rows of table 2, for any number of stages; norms keep 16
// s b of a layer beside them.
TEST(WhatFits, AStageKeepsThePublishedBytes) {
  for (const PublishedModel& model : published_models()) {
    const GptConfig config = model.config();
    const auto s = static_cast<double>(config.context), h = static_cast<double>(model.width);
    const auto b = static_cast<double>(model.samples), L = static_cast<double>(model.layers);
    const double scores = 5 * static_cast<double>(model.heads) * s / h, t = model.tensor;
    const double layers = L * s * b * h, statistics = L * 16 * s * b;
    const auto kept = [&](LayerSplit split, const char* recompute) {
      return first_stage(model, model.step(split, recompute)).activations;
    };
    const LayerSplit both = LayerSplit::TensorAndSequence, tensor = LayerSplit::Tensor;
    EXPECT_DOUBLE_EQ(kept(tensor, "none"), layers * (10 + (24 + scores) / t) + statistics)
        << model.name;
    EXPECT_DOUBLE_EQ(kept(both, "none"), (layers * (34 + scores) + statistics) / t) << model.name;
    EXPECT_DOUBLE_EQ(kept(tensor, "core"), layers * (10 + 24 / t) + statistics) << model.name;
    EXPECT_DOUBLE_EQ(kept(both, "core"), (layers * 34 + statistics) / t) << model.name;
    EXPECT_DOUBLE_EQ(kept(tensor, "block"), layers * 2) << model.name;
  }
}

// 16 bytes a parameter, of about a t p-th of the model's. Without the two techniques of the paper
// no model fits into 80 GB, with both each does.
TEST(WhatFits, OnAnA100WithBothTechniques) {
  for (const PublishedModel& model : published_models()) {
    const StageBytes all = first_stage(model, model.step(LayerSplit::Tensor, "none"));
    const StageBytes both = first_stage(model, model.step(LayerSplit::TensorAndSequence, "core"));
    EXPECT_GT(all.total(), 80e9) << model.name;
    EXPECT_LT(both.total(), 80e9) << model.name;
    EXPECT_EQ(all.gradients, all.weights) << model.name;
    EXPECT_EQ(all.optimizer, 6 * all.weights) << model.name;
  }
}

// What stays whole on each rank bounds the batch, however many ranks there are.
TEST(WhatFits, SharedTokensGoOnWhereSharedLayersEnd) {
  const Machine machine = find_machine("dgx-a100");
  const GptConfig config{.layers = 4,
                         .heads = 64,
                         .width = 1024,
                         .context = 1024,
                         .vocabulary = 128,
                         .dtype = DType::BF16};
  const auto largest = [&](LayerSplit split, int t) {
    return largest_that_fits([&](std::int64_t samples) {
      SplitStep step = fused_step(split, t, samples);
      step.blocks = {.begin = 1, .end = 3};
      return run_step(machine, config, step).ledger.total.peak_bytes <= 2'000'000'000;
    });
  };
  const double tensor = static_cast<double>(largest(LayerSplit::Tensor, 64)) /
                        static_cast<double>(largest(LayerSplit::Tensor, 8));
  const double both = static_cast<double>(largest(LayerSplit::TensorAndSequence, 64)) /
                      static_cast<double>(largest(LayerSplit::TensorAndSequence, 8));
  EXPECT_LT(tensor, 2);
  EXPECT_GT(both, tensor) << "ranks 8 to 64";
}

}  // namespace
}  // namespace aisc
