// Which scores are right: those whose target has the highest of its row.
#include "12_encoders/more/counted_loss.h"

#include <gtest/gtest.h>

#include <vector>

#include "12_encoders/bert.h"
#include "tests/12_encoders/some_pairs.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

// Three rows of four scores, the last of which is of no class.
constexpr std::int64_t kCountedClasses = 3;
Tensor counted_scores(DType dtype, Device& device) {
  return from_doubles({1, 3, 2, 9, 5, 5, 1, 0, -1, -3, -2, 7}, {3, 4}, dtype, device);
}

TEST(HitsOf, CountsTheHighestOfTheClasses) {
  CpuDevice device;
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16}) {
    const Tensor scores = counted_scores(dtype, device);
    const auto hits = [&](const std::vector<std::int32_t>& targets) {
      return hits_of(scores, kCountedClasses, ids_tensor(targets, device));
    };
    EXPECT_EQ(hits({1, 0, 0}).right, 3) << "of equal scores the first counts";
    EXPECT_EQ(hits({1, 1, 2}).right, 1);
    EXPECT_EQ(hits({1, 1, 2}).of, 3);
    const Hits some = hits({-1, 0, -1});
    EXPECT_EQ(some.right, 1);
    EXPECT_EQ(some.of, 1) << "where there is no target nothing is counted";
  }
}

TEST(HitsOf, SaysItOfEachPlace) {
  CpuDevice device;
  const Tensor scores = counted_scores(DType::F32, device).reshaped({1, 3, 4});
  EXPECT_EQ(places_right(scores, kCountedClasses, ids_tensor({1, -1, 2}, device)),
            (std::vector<std::int8_t>{1, -1, 0}));
  EXPECT_EQ(hits_of(Tensor({0, 4}, DType::F32, device), 4, Tensor({0}, DType::I32, device)).of, 0);
}

TEST(CountedLoss, CountsInEvaluationAndLeavesTheLossAlone) {
  TestWorld world;
  TrainConfig config{.model = odd_config(), .gradient_dtype = DType::F64, .batch = 4};
  config.model.encoder_blocks = config.model.layers;
  const StepParts plain = bert({.batch = 4, .predictions = 2});
  const SomePairs pairs(config.model.context, config.model.vocabulary, 2);
  std::int64_t calls = 0;
  const auto count = [&](const Loss&, const Tensor&, const Tensor& targets, const Pass& pass) {
    EXPECT_FALSE(pass.training);
    ++calls;
    return std::vector<Hits>{{.right = 1, .of = targets.count()}, {.right = 0, .of = 1}};
  };
  Trainer counted(world.rank, config, counting(plain, count)), other(world.rank, config, plain);
  EXPECT_EQ(counted.step(pairs).loss, other.step(pairs).loss);
  std::vector<Batch> windows;
  for (const int count_of_window : {1, 3})
    windows.push_back(pairs.batch(world.device, 5, count_of_window));
  EXPECT_EQ(counted.evaluate(windows), other.evaluate(windows));
  EXPECT_EQ(calls, 0) << "nobody asked";
  const CountedEvaluation found = evaluate_counting(world.rank, counted, windows, 2);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(found.loss, other.evaluate(windows));
  EXPECT_EQ(found.hits[0].right, 2);
  EXPECT_EQ(found.hits[0].of, 3 + 9);
  EXPECT_EQ(found.hits[1].share(), 0);
  EXPECT_TRUE(error_says([&] { evaluate_counting(world.rank, other, windows, 2); },
                         {"a loss that counts nothing"}));
  EXPECT_TRUE(error_says([&] { evaluate_counting(world.rank, counted, windows, 3); },
                         {"no sample had a target"}));
}

}  // namespace
}  // namespace aisc
