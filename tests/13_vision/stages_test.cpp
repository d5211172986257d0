// A network of images in stages: where it is cut, what passes, and that it learns as on one rank.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "05_pipeline/partition.h"
#include "05_pipeline/pipelined.h"
#include "13_vision/classifier_stages.h"
#include "common/comm/host_values.h"
#include "tests/13_vision/small_images.h"
#include "tests/support/drawn.h"
#include "tests/support/late_comm.h"
#include "tests/support/message_of.h"
#include "tests/support/numbers.h"

namespace aisc {
namespace {

using Begins = std::vector<std::size_t>;

// Layers of so many FLOPs, each with the elements of an image that it takes.
std::vector<LayerSize> layers_of(const std::vector<std::pair<double, std::int64_t>>& sizes) {
  std::vector<LayerSize> layers;
  for (const auto& [flops, elements] : sizes)
    layers.push_back({fmt::format("layer {}", layers.size()), Shape{elements}, flops});
  return layers;
}

// Where the stages begin, which have to follow one another up to the last layer.
Begins begins_of(const std::vector<LayerRange>& cut, std::size_t layers) {
  Begins begins;
  std::size_t at = 0;
  for (const LayerRange& stage : cut) {
    EXPECT_EQ(stage.begin, at) << "a stage begins where the one before it ends";
    EXPECT_GT(stage.end, stage.begin);
    begins.push_back(stage.begin);
    at = stage.end;
  }
  EXPECT_EQ(at, layers);
  return begins;
}

Begins best(const std::vector<std::pair<double, std::int64_t>>& sizes, int stages) {
  const std::vector<LayerSize> layers = layers_of(sizes);
  return begins_of(best_cut(layers, stages), layers.size());
}

// 4 1 | 3 has a slowest stage of 5, 4 | 1 3 of 4.
TEST(BestCut, HasTheQuickestSlowestStage) {
  EXPECT_EQ(best({{4, 1}, {1, 1}, {3, 1}}, 2), (Begins{0, 1})) << "FLOPs 4 1 3 in two stages";
  EXPECT_EQ(best({{1, 1}, {1, 1}, {1, 1}, {9, 1}}, 2), (Begins{0, 3})) << "FLOPs 1 1 1 9";
  EXPECT_EQ(best({{2, 1}, {2, 1}, {2, 1}, {2, 1}}, 4), (Begins{0, 1, 2, 3}));
  EXPECT_EQ(best({{2, 1}, {5, 1}}, 1), (Begins{0}));
}

// The layer between costs nothing: behind it 10 elements pass, in front of it 40.
TEST(BestCut, HandsOverTheFewestElementsOfThoseThatAreAsQuick) {
  EXPECT_EQ(best({{5, 100}, {0, 40}, {5, 10}}, 2), (Begins{0, 2}))
      << "a pool with 0 FLOPs goes to the stage that then sends less";
  EXPECT_EQ(best({{5, 100}, {0, 10}, {5, 40}}, 2), (Begins{0, 1}));
  // Two layers of no FLOPs, and three stages: all handovers count.
  EXPECT_EQ(best({{5, 100}, {0, 40}, {5, 30}, {0, 25}, {5, 20}}, 3), (Begins{0, 2, 4}))
      << "30 + 20 elements, not 30 + 25";
}

TEST(BestCut, NeverPaysForElementsWithTime) {
  EXPECT_EQ(best({{5, 100}, {1, 1}, {5, 1000}}, 2), (Begins{0, 1}))
      << "6 and 5, or 5 and 6: as quick, and 1 element in place of 1000";
  EXPECT_EQ(best({{5, 100}, {1, 1}, {4, 1000}}, 2), (Begins{0, 1}));
  EXPECT_EQ(best({{4, 100}, {1, 1}, {5, 1000}}, 2), (Begins{0, 2})) << "5 and 5, not 4 and 6";
}

// Against 05's cut, which knows no elements, and all cuts of two numbers by hand.
TEST(BestCut, IsAsQuickAsThatOfModule05) {
  for (int round = 0; round < 5; ++round) {
    const std::int64_t n = drawn(fmt::format("layers {}", round), 3, 8);
    std::vector<double> flops;
    std::vector<std::pair<double, std::int64_t>> sizes;
    for (std::int64_t i = 0; i < n; ++i) {
      flops.push_back(static_cast<double>(drawn(fmt::format("flops {} {}", round, i), 0, 9)));
      sizes.emplace_back(flops.back(), drawn(fmt::format("elements {} {}", round, i), 1, 50));
    }
    const auto slowest = [&](const auto& begins) {
      double most = 0;
      for (std::size_t s = 0; s < begins.size(); ++s) {
        double sum = 0;
        const std::size_t end =
            s + 1 < begins.size() ? static_cast<std::size_t>(begins[s + 1]) : flops.size();
        for (auto i = static_cast<std::size_t>(begins[s]); i < end; ++i) sum += flops[i];
        most = std::max(most, sum);
      }
      return most;
    };
    for (int stages = 1; stages <= 4 && stages <= n; ++stages)
      EXPECT_EQ(slowest(best(sizes, stages)), slowest(cut(flops, stages)))
          << stages << " stages of FLOPs " << fmt::format("{}", fmt::join(flops, " "));
  }
}

TEST(GivenStages, SayHowManyLayersThereAre) {
  const std::vector<LayerSize> layers = layers_of({{1, 1}, {1, 1}});
  for (const int stages : {0, 3})
    EXPECT_EQ(message_of([&] { best_cut(layers, stages); }),
              fmt::format("classifier: {} stages of 2 layers, expected 1 to 2", stages));
}

// The default classifier, by hand: 3 x 3 filters of 1 to 16 channels over 28 x 28 places, and so
// on.
TEST(GivenStages, LayersOfTheDefaultClassifier) {
  const std::vector<LayerSize> layers = layer_sizes({});
  ASSERT_EQ(layers.size(), 7u);
  const double stem = 2. * 9 * 16 * 784, block0 = 2 * (2. * 9 * 16 * 16 * 196),
               block1 = 2. * (9 * 16 + 9 * 32 + 16) * 32 * 49,
               block2 = 2. * (9 * 32 + 9 * 64 + 32) * 64 * 16;
  const std::vector<std::pair<double, Shape>> expected{
      {stem, {1, 28, 28}},    {16 * 784, {16, 28, 28}}, {block0, {16, 14, 14}},
      {block1, {16, 14, 14}}, {block2, {32, 7, 7}},     {64 * 16, {64, 4, 4}},
      {2. * 64 * 10, {64}}};
  for (std::size_t i = 0; i < layers.size(); ++i) {
    EXPECT_EQ(layers[i].flops, expected[i].first) << layers[i].name;
    EXPECT_EQ(layers[i].input, expected[i].second) << layers[i].name;
  }
  const std::vector<LayerSize> more = layer_sizes({.experts = 4});
  ASSERT_EQ(more.size(), 8u);
  EXPECT_EQ(more[5].name, "experts");
  EXPECT_EQ(more[5].flops, 16 * (2 * 2 * 2. * 64 * 128 + 2. * 64 * 4));
}

TEST(StageInput, IsOfAsManyImages) {
  const std::vector<LayerSize> layers{
      {"stem", {1, 28, 30}, 1}, {"block", {16, 14, 15}, 1}, {"head", {64}, 1}};
  EXPECT_EQ(stage_input(layers, {1, 3}, 5), (Shape{5, 16, 14, 15}))
      << "what the block takes of 5 images";
  EXPECT_EQ(stage_input(layers, {2, 3}, 7), (Shape{7, 64})) << "behind the mean: 7 rows";
  EXPECT_EQ(stage_input(layers, {1, 2}, 0), (Shape{0, 16, 14, 15}));
}

TEST(StageOf, HasItsLayersAndTheLastTheLoss) {
  const std::vector<std::string> names{"stem", "pool", "block", "mean", "head"};
  for (const LayerRange& range : {LayerRange{0, 2}, {2, 3}, {3, 5}, {0, 5}}) {
    TestWorld world;
    const Model own = stage_of(small_images_model(world.rank, ImageNorm::None, *world.comm), range);
    ASSERT_EQ(own.layers.size(), range.count());
    for (std::size_t i = 0; i < own.layers.size(); ++i)
      EXPECT_EQ(own.layers[i]->name(), names[range.begin + i]);
    EXPECT_EQ(own.loss != nullptr, range.end == 5) << "the loss is behind the last layer";
    ASSERT_EQ(own.stages.size(), 1u) << "this rank's stage, of which there is one";
    EXPECT_EQ(own.stages[0].begin, 0u) << "counted in the layers that are here";
    EXPECT_EQ(own.stages[0].end, own.layers.size());
  }
}

// Sizes of the small model's layers, with FLOPs that cut it where the test likes.
std::vector<LayerSize> small_sizes(const std::vector<double>& flops) {
  const std::vector<Shape> inputs{
      {1, kRows, kColumns}, {3, kRows, kColumns}, {3, 4, 5}, {5, 2, 3}, {5}};
  std::vector<LayerSize> layers;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    layers.push_back({fmt::format("layer {}", i), inputs[i], flops[i]});
  return layers;
}

RunRecord staged_steps(int stages, const std::string& schedule, ImageNorm norm,
                       const std::vector<double>& flops, const SmallSteps& s) {
  RunRecord record;
  std::mutex mutex;
  launch(late(stages), [&](const Rank& rank) {
    const std::vector<LayerSize> layers = small_sizes(flops);
    const std::vector<LayerRange> cut = best_cut(layers, stages);
    const auto alone = make_self_communicator("batch");
    const Model model =
        stage_of(small_images_model(rank, norm, *alone), cut.at(index(rank.world.rank())));
    // A stage may have no weight at all: pooling alone.
    const std::vector<Unit> units = make_units(model);
    std::unique_ptr<ParameterStore> store;
    std::unique_ptr<Sgd> sgd;
    if (!units.empty()) {
      store = std::make_unique<ParameterStore>(
          rank.device, units,
          ParameterStore::Options{.value_dtype = DType::F64, .grad_dtype = DType::F64});
      store->initialize(7);
      sgd = std::make_unique<Sgd>(slices_of(store->parameters()),
                                  Sgd::Options{.momentum = kSmallMomentum});
    }
    PipelineRank pipeline(
        rank, rank.world, model,
        find_schedule({.schedule = schedule}, stages, static_cast<int>(s.micro_batches)),
        {.input_shape =
             [&](int stage, const Shape& images) {
               return stage_input(layers, cut[index(stage)], images[0]);
             },
         .dtype = DType::F64});
    std::vector<double> losses;
    for (std::int64_t step = 0; step < s.steps; ++step) {
      if (store) store->clear_grads();
      const ReadMicroBatch read = [&](std::int64_t m) {
        const Range part = share_of(s.images, m, s.micro_batches);
        ImageBatch batch = small_images(rank, step, part.begin, part.count());
        return micro_batch_of({.tokens = std::move(batch.images),
                               .targets = std::move(batch.labels),
                               .terms = static_cast<double>(part.count())},
                              {});
      };
      const double loss =
          pipeline.run(s.micro_batches, read, 1 / static_cast<double>(s.images), {});
      if (sgd) sgd->step({.learning_rate = kSmallRate});
      losses.push_back(sum_of_all(rank.world, loss) / static_cast<double>(s.images));
    }
    const std::lock_guard lock(mutex);
    record.losses = losses;
    if (store) note(record, *store);
  });
  return record;
}

// Two stages, cut at each place once, and four, of micro-batches that are not equally large.
TEST(StagesOfImages, LearnAsOneRankDoes) {
  const std::vector<std::vector<double>> cuts{
      {9, 9, 0, 0, 0}, {9, 0, 9, 0, 0}, {3, 3, 3, 9, 0}, {1, 1, 1, 9, 9}};
  const SmallSteps steps{.steps = 3, .images = 7, .micro_batches = 3};
  for (const ImageNorm norm : {ImageNorm::Batch, ImageNorm::Layer}) {
    const RunRecord serial = serial_steps(norm, steps);
    for (const int stages : {1, 2, 4})
      for (const std::string schedule : {"gpipe", "1f1b"})
        for (const std::vector<double>& flops : cuts)
          EXPECT_TRUE(
              same_run(serial, staged_steps(stages, schedule, norm, flops, steps), kSameRunF64))
              << stages << " stages, " << schedule << ", FLOPs "
              << fmt::format("{}", fmt::join(flops, " "));
  }
}

// A batch norm sees a micro-batch, so that their number changes what is learnt, stages or none.
TEST(StagesOfImages, WithABatchNormAreAnotherFunctionOfMicroBatches) {
  const std::vector<double> flops{9, 0, 9, 0, 0};
  const RunRecord whole = serial_steps(ImageNorm::Batch, {.steps = 1, .images = 8});
  const RunRecord parts = staged_steps(2, "1f1b", ImageNorm::Batch, flops,
                                       {.steps = 1, .images = 8, .micro_batches = 4});
  EXPECT_GT(std::abs(whole.losses[0] - parts.losses.at(0)), 1e-3);
}

}  // namespace
}  // namespace aisc
