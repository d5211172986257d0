// The network that learns digits: its layers, what it counts as right, and that it learns, on one
// rank and on several.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <numeric>

#include "13_vision/classifier_stages.h"
#include "13_vision/digit_classifier.h"
#include "13_vision/image_set.h"
#include "common/comm/host_values.h"
#include "tests/13_vision/layer_check.h"
#include "tests/13_vision/small_images.h"
#include "tests/support/drawn.h"
#include "tests/support/late_comm.h"
#include "tests/support/message_of.h"
#include "tests/support/numbers.h"

namespace aisc {
namespace {

std::vector<std::string> names_of(const Model& model) {
  std::vector<std::string> names;
  for (const auto& layer : model.layers) names.push_back(layer->name());
  return names;
}

// Of the parameters of each layer: name and shape.
std::vector<std::string> parameters_of(const Model& model) {
  std::vector<std::string> all;
  for (const auto& layer : model.layers)
    for (const Parameter* p : layer->parameters())
      all.push_back(p->name + " " + p->shape.to_string());
  return all;
}

const ClassifierConfig kTwoBlocks{
    .images = {1, 8, 10}, .classes = 4, .width = 3, .blocks = 2, .norm = ImageNorm::None};

TEST(Classifier, HasItsLayersInTheirOrder) {
  TestWorld world;
  EXPECT_EQ(names_of(make_digit_classifier(world.rank, kTwoBlocks, *world.comm)),
            (std::vector<std::string>{"stem", "pool", "blocks.0", "blocks.1", "mean", "head"}));
  ClassifierConfig config = kTwoBlocks;
  config.experts = 2;
  config.blocks = 1;
  EXPECT_EQ(names_of(make_digit_classifier(world.rank, config, *world.comm)),
            (std::vector<std::string>{"stem", "pool", "blocks.0", "experts", "mean", "head"}));
}

// The second block has twice the channels, and so a shortcut of 1 x 1 filters.
TEST(Classifier, DoublesTheChannelsWithEachBlockButTheFirst) {
  TestWorld world;
  const std::vector<std::string> found =
      parameters_of(make_digit_classifier(world.rank, kTwoBlocks, *world.comm));
  const auto has = [&](const std::string& text) {
    return std::any_of(found.begin(), found.end(),
                       [&](const std::string& p) { return p.find(text) != std::string::npos; });
  };
  SCOPED_TRACE(fmt::format("found {}", fmt::join(found, ", ")));
  EXPECT_TRUE(has("stem.weight (3, 1, 3, 3)")) << "width 3: 3 filters of the stem";
  EXPECT_TRUE(has("(3, 3, 3, 3)")) << "the first block: 3 channels stay 3";
  EXPECT_TRUE(has("(6, 3, 3, 3)")) << "the second block: 3 channels become 6";
  EXPECT_TRUE(has("(6, 6, 3, 3)"));
  EXPECT_TRUE(has("(6, 3, 1, 1)")) << "its shortcut";
  EXPECT_FALSE(has("(3, 3, 1, 1)")) << "a first block whose sizes stay has x as its shortcut";
  EXPECT_TRUE(has("head.weight (4, 6)")) << "4 classes of 6 channels";
}

// A norm of whole images has a weight for each element: 3 x 8 x 10 behind the stem, 3 x 4 x 5 in
// the block behind the pooling.
TEST(Classifier, TellsTheBlocksThatPoolingHalves) {
  TestWorld world;
  ClassifierConfig config = kTwoBlocks;
  config.norm = ImageNorm::Layer;
  std::vector<std::int64_t> of_stem, of_block;
  for (const auto& layer : make_digit_classifier(world.rank, config, *world.comm).layers)
    for (const Parameter* p : layer->parameters())
      if (p->name.find("norm.weight") != std::string::npos)
        (p->name.starts_with("stem") ? of_stem : of_block).push_back(p->shape.count());
  EXPECT_EQ(of_stem, (std::vector<std::int64_t>{240}));
  ASSERT_GE(of_block.size(), 2u);
  EXPECT_EQ(of_block[0], 60) << "images of 8 x 10 are 4 x 5 behind the pooling";
}

// Odd sizes: a stride of 2 rounds up, pooling down.
TEST(Classifier, HandsOnWhatLayerSizesSay) {
  for (const std::int64_t experts : {0, 2}) {
    TestWorld world;
    const ClassifierConfig config{.images = {1, drawn("rows", 9, 17), drawn("columns", 9, 17)},
                                  .classes = 5,
                                  .width = drawn("width", 2, 5),
                                  .blocks = 3,
                                  .experts = experts};
    const Model model = make_digit_classifier(world.rank, config, *world.comm);
    const ParameterStore store(world.device, all_units(model),
                               {.value_dtype = DType::F64, .grad_dtype = DType::F64});
    for (const Parameter* p : store.parameters()) draw(p->value(), *p, 0, 1);
    const std::vector<LayerSize> sizes = layer_sizes(config);
    ASSERT_EQ(model.layers.size(), sizes.size());
    Tensor x = random_tensor({2, 1, config.images.height, config.images.width}, DType::F64,
                             world.device, "x");
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(model.layers[i]->name(), sizes[i].name);
      const Shape& one = sizes[i].input;
      ASSERT_EQ(x.shape(),
                one.rank() == 1 ? (Shape{2, one[0]}) : (Shape{2, one[0], one[1], one[2]}))
          << "what layer " << sizes[i].name << " takes of 2 images";
      Saved nothing = Saved::nothing();
      x = model.layers[i]->forward(std::move(x), nothing, {});
    }
    EXPECT_EQ(x.shape(), (Shape{2, 5})) << "a logit a class";
  }
}

TEST(Classifier, DrawsTheHeadByItsChannels) {
  TestWorld world;
  ClassifierConfig config = kTwoBlocks;
  config.width = 32;
  const Model model = make_digit_classifier(world.rank, config, *world.comm);
  for (const Parameter* p : model.layers.back()->parameters())
    if (p->shape.rank() == 2) {
      EXPECT_EQ(p->init.kind, Init::Kind::Normal);
      EXPECT_DOUBLE_EQ(p->init.value, 1 / std::sqrt(64.0)) << "64 channels";
    }
}

TEST(Classifier, CountsWhatIsRight) {
  CpuDevice device;
  const Tensor logits =
      from_doubles({1, 2, 0, 5, 5, 0, 0, 1, 9, -3, -1, -2}, {4, 3}, DType::F64, device);
  EXPECT_EQ(count_right(logits, ids_tensor({1, 0, 1, 1}, device)), 3)
      << "rows (1 2 0) label 1, (5 5 0) label 0, (0 1 9) label 1, (-3 -1 -2) label 1";
  EXPECT_EQ(count_right(logits, ids_tensor({1, 1, 2, 1}, device)), 3)
      << "of two equal logits the first is the largest";
}

TEST(Classifier, CountsNoRowWithNaN) {
  CpuDevice device;
  const double nan = std::nan("");
  const Tensor logits = from_doubles({nan, 1, 0, 9, nan, 1, 0, 1, nan}, {3, 3}, DType::F64, device);
  EXPECT_EQ(count_right(logits, ids_tensor({0, 0, 1}, device)), 0);
  const Tensor none({0, 3}, DType::F32, device);
  EXPECT_EQ(count_right(none, ids_tensor({}, device)), 0) << "of no image none is right";
}

// Forty steps with the same 32 images: from 2.3, which says nothing of ten classes, to less than 1.
TEST(Classifier, Learns) {
  TestWorld world;
  const ImageSet set = draw_image_set(1, 0, 32);
  const Model model = make_digit_classifier(world.rank, {.width = 8, .blocks = 2}, *world.comm);
  ParameterStore store(world.device, make_units(model), {});
  store.initialize(1);
  AdamW optimizer(slices_of(store.parameters()), {});
  std::vector<std::int64_t> all(32);
  std::iota(all.begin(), all.end(), 0);
  const ImageBatch batch = set.batch(all, DType::F32, world.device);
  std::vector<double> losses;
  for (int step = 0; step < 40; ++step) {
    store.clear_grads();
    losses.push_back(forward_backward(model, batch.images, batch.labels, {}, 1.0 / 32) / 32);
    optimizer.step({.learning_rate = 5e-3});
  }
  EXPECT_GT(losses.front(), 1.8);
  EXPECT_LT(losses.back(), 1);
  EXPECT_GT(count_right(forward(model, batch.images), batch.labels), 16) << "by running statistics";
}

TEST(GivenClassifier, SaysWhatItCannotBeMadeFor) {
  TestWorld world;
  const auto message = [&](const ClassifierConfig& config) {
    return message_of([&] { make_digit_classifier(world.rank, config, *world.comm); });
  };
  EXPECT_EQ(message({.images = {1, 1, 28}}),
            "digit classifier: images of 1 x 28, expected 2 x 2 or more");
  EXPECT_EQ(
      message({.blocks = 0}),
      "digit classifier: 1 channels, 10 classes, width 16, 0 blocks, expected 1 or more of each");
  EXPECT_EQ(message({.experts = -1}), "digit classifier: -1 experts, expected 0 or more");
  CpuDevice device;
  EXPECT_EQ(message_of([&] {
              count_right(Tensor({4, 3}, DType::F64, device), ids_tensor({1, 0}, device));
            }),
            "count_right: logits are (4, 3), expected (2, classes)");
}

// What a loss is off by at least, relative to it, where it is of another function.
constexpr double kAnotherLoss = 0.01;

// Steps of a whole classifier by SGD: losses, gradients and weights of the last step.
RunRecord steps_of_classifier(int ranks, ImageNorm norm, int steps) {
  constexpr std::int64_t N = 7;
  RunRecord record;
  std::mutex mutex;
  launch(late(ranks), [&](const Rank& rank) {
    ClassifierConfig config = kTwoBlocks;
    config.norm = norm;
    const Model model = make_digit_classifier(rank, config, rank.world);
    ParameterStore store(rank.device, make_units(model),
                         {.value_dtype = DType::F64, .grad_dtype = DType::F64});
    store.initialize(7);
    Sgd sgd(slices_of(store.parameters()), {.momentum = 0.9});
    const Range mine = uneven_share(N, rank.world.rank(), ranks);
    std::vector<double> losses;
    for (int step = 0; step < steps; ++step) {
      const Tensor x =
          random_tensor({N, 1, 8, 10}, DType::F64, rank.device, fmt::format("x{}", step));
      const std::vector<std::int32_t> labels = random_ids(N, 4, fmt::format("labels{}", step));
      Tensor own({mine.count(), 1, 8, 10}, DType::F64, rank.device);
      rank.device.copy(own, x.rows(mine.begin, mine.end));
      const Tensor own_labels =
          ids_tensor({labels.begin() + mine.begin, labels.begin() + mine.end}, rank.device);
      store.clear_grads();
      const double loss = forward_backward(model, own, own_labels, {}, 1.0 / N);
      rank.world.all_reduce(store.grads()).wait();
      sgd.step({.learning_rate = 0.1});
      losses.push_back(sum_of_all(rank.world, loss) / N);
    }
    const std::lock_guard lock(mutex);
    record.losses = losses;
    note(record, store);
  });
  return record;
}

TEST(ClassifierOnRanks, LearnsAsOnOneWithSyncBatchLayerAndNoNorm) {
  for (const ImageNorm norm : {ImageNorm::SyncBatch, ImageNorm::Layer, ImageNorm::None}) {
    const RunRecord serial = steps_of_classifier(1, norm, 3);
    for (const int ranks : {2, 4})
      EXPECT_TRUE(same_run(serial, steps_of_classifier(ranks, norm, 3), kSameRunF64))
          << ranks << " ranks, norm " << static_cast<int>(norm);
  }
}

TEST(ClassifierOnRanks, DoesNotWithTheBatchNormOfEachRank) {
  const RunRecord serial = steps_of_classifier(1, ImageNorm::Batch, 1);
  const RunRecord found = steps_of_classifier(2, ImageNorm::Batch, 1);
  EXPECT_GT(std::abs(found.losses[0] - serial.losses[0]), kAnotherLoss * serial.losses[0]);
}

}  // namespace
}  // namespace aisc
