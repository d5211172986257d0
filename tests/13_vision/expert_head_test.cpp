// Experts in the head: places as tokens, the branch around the experts, and experts on other ranks.
#include "13_vision/expert_head.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <numeric>

#include "common/comm/host_values.h"
#include "tests/13_vision/layer_check.h"
#include "tests/13_vision/small_images.h"
#include "tests/nn/layer_check.h"
#include "tests/support/drawn.h"
#include "tests/support/late_comm.h"
#include "tests/support/message_of.h"
#include "tests/support/numbers.h"

namespace aisc {
namespace {

// Two images of 2 channels and 1 x 3 places: channel 0 has 1 2 3, channel 1 has 10 20 30.
TEST(ImageTokens, ByHand) {
  CpuDevice device({.poison = true});
  const Tensor x =
      from_doubles({1, 2, 3, 10, 20, 30, 4, 5, 6, 40, 50, 60}, {2, 2, 1, 3}, DType::F64, device);
  const Tensor tokens = tokens_of(x);
  EXPECT_EQ(tokens.shape(), (Shape{2, 3, 2})) << "3 places of 2 channels";
  EXPECT_TRUE(numbers_are("tokens", tokens, {1, 10, 2, 20, 3, 30, 4, 40, 5, 50, 6, 60}));
  EXPECT_TRUE(numbers_are("images again", images_of(tokens, x.shape()), to_doubles(x)));
}

TEST(ImageTokens, ComeBackForAnySizes) {
  CpuDevice device({.poison = true});
  for (const DType dtype : {DType::F32, DType::F64})
    for (const std::int64_t N : {std::int64_t{0}, std::int64_t{1}, drawn("images", 2, 4)}) {
      const std::int64_t C = drawn("channels", 1, 5), H = drawn("rows", 1, 4),
                         W = drawn("columns", 1, 4);
      const Tensor x = random_tensor({N, C, H, W}, dtype, device, "x");
      const Tensor tokens = tokens_of(x);
      ASSERT_EQ(tokens.shape(), (Shape{N, H * W, C}));
      EXPECT_EQ(to_doubles(images_of(tokens, x.shape())), to_doubles(x));
      if (N == 0) continue;
      const std::vector<double> all = to_doubles(x), of_tokens = to_doubles(tokens);
      const std::int64_t n = N - 1, c = C - 1, h = H - 1, w = W / 2;
      EXPECT_EQ(of_tokens.at(index((n * H * W + h * W + w) * C + c)),
                all.at(index(((n * C + c) * H + h) * W + w)))
          << fmt::format("image {}, channel {}, row {}, column {} of ({}, {}, {}, {})", n, c, h, w,
                         N, C, H, W);
    }
}

TEST(GivenExperts, SayWhatIsNoImage) {
  CpuDevice device;
  EXPECT_EQ(message_of([&] {
              tokens_of(Tensor({2, 3}, DType::F64, device));
            }),
            "tokens of images: x is (2, 3), expected images (N, C, H, W)");
  EXPECT_EQ(
      message_of([&] {
        images_of(Tensor({2, 3, 4}, DType::F64, device), {2, 3, 1, 4});
      }),
      "images of tokens: tokens are (2, 3, 4), expected (2, 4, 3) for images of (2, 3, 1, 4)");
  EXPECT_EQ(message_of([&] {
              images_of(Tensor({2, 3, 4}, DType::F64, device), {2, 4, 3});
            }),
            "images of tokens: images are (2, 4, 3), expected (N, C, H, W)");
  EXPECT_EQ(message_of([&] {
              images_of(Tensor({2, 4, 3}, DType::BF16, device), {2, 3, 1, 4});
            }),
            "images of tokens: x is BF16, expected F32 or F64");
}

// Router and experts with weights that all are 0 say nothing: y is x, and dx is dy.
TEST(ExpertHead, AddsToItsInput) {
  TestWorld world;
  ExpertHead head(world.rank, "experts", 3, {.count = 2, .capacity = 0}, *world.comm);
  ParameterStore data(world.device, {{"router", {head.parameters()[0]}}},
                      {.value_dtype = DType::F64, .grad_dtype = DType::F64});
  std::vector<Parameter*> of_experts = head.parameters();
  of_experts.erase(of_experts.begin());
  ParameterStore experts(world.device, {{"experts", of_experts}},
                         {.value_dtype = DType::F64, .grad_dtype = DType::F64});
  ops::fill(data.values(), 0);
  ops::fill(experts.values(), 0);
  const Tensor x = random_tensor({2, 3, 2, 2}, DType::F64, world.device, "x"), before = x.clone();
  Saved saved;
  const Tensor y = head.forward(x.share(), saved, {});
  EXPECT_EQ(to_doubles(y), to_doubles(before)) << "experts that say 0: y = x";
  EXPECT_TRUE(same_bits(x, before)) << "x belongs to the layer before";
  const Tensor dy = random_tensor({2, 3, 2, 2}, DType::F64, world.device, "dy"), same = dy.clone();
  EXPECT_EQ(to_doubles(head.backward(dy.share(), saved, {})), to_doubles(same)) << "and dx = dy";
  EXPECT_EQ(saved.size(), 0u);
}

// A network with a head of four experts: images, filters, experts, mean, logits.
Model with_experts(const Rank& rank, Communicator& ranks, const GptExperts& experts) {
  ImageSize images{1, kRows, kColumns};
  Model model;
  model.layers.push_back(
      make_filters(rank, "stem", images, 6, 3, 3, {ImageNorm::None, ranks}, Ends::Relu));
  model.layers.push_back(std::make_unique<ExpertHead>(rank, "experts", 6, experts, ranks));
  model.layers.push_back(std::make_unique<GlobalAveragePool>(rank, "mean"));
  model.layers.push_back(std::make_unique<Linear>(rank, "head", 6, kClasses, 0.5));
  model.loss = std::make_unique<CrossEntropy>(rank, kClasses);
  return model;
}

constexpr std::int64_t kPlaces = 3 * 4;  // behind the stem's stride of 3

// Steps of SGD on ranks that share the images unevenly and each have some experts.
RunRecord expert_steps(int ranks, const GptExperts& experts, std::int64_t steps) {
  constexpr std::int64_t N = 7;
  RunRecord record;
  std::mutex mutex;
  launch(late(ranks), [&](const Rank& rank) {
    const Model model = with_experts(rank, rank.world, experts);
    const ParameterStore::Options types{.value_dtype = DType::F64, .grad_dtype = DType::F64};
    ParameterStore own(rank.device, make_units(model, Sync::ExpertData), types);
    ParameterStore store(rank.device, make_units(model), types);
    own.initialize(7);
    store.initialize(7);
    std::vector<OptimizerSlice> slices = slices_of(store.parameters());
    for (const OptimizerSlice& slice : slices_of(own.parameters())) slices.push_back(slice);
    Sgd sgd(slices, {.momentum = kSmallMomentum});
    const Range mine = uneven_share(N, rank.world.rank(), ranks);
    ExtraLoss extra{.factor = 1.0 / static_cast<double>(N * kPlaces)};
    std::vector<double> losses;
    for (std::int64_t step = 0; step < steps; ++step) {
      store.clear_grads();
      own.clear_grads();
      extra.sum = 0;
      const ImageBatch batch = small_images(rank, step, mine.begin, mine.count());
      const double loss =
          forward_backward(model, batch.images, batch.labels, {.extra = &extra}, 1.0 / N);
      store.complete_grads();
      own.complete_grads();
      rank.world.all_reduce(store.grads()).wait();
      sgd.step({.learning_rate = kSmallRate});
      losses.push_back(sum_of_all(rank.world, loss) / N +
                       sum_of_all(rank.world, extra.sum) / static_cast<double>(N * kPlaces));
    }
    const RunRecord whole = gather_whole(rank, slices);
    const std::lock_guard lock(mutex);
    record = whole;
    record.losses = losses;
  });
  return record;
}

// One rank, or two, or four, of which one has no image: the same, with room for all and without.
TEST(ExpertHead, LearnsOnRanksThatEachHaveSomeExperts) {
  for (const double capacity : {0.0, 1.0}) {
    const GptExperts experts{.count = 4, .capacity = capacity, .balance = 0.1};
    const RunRecord serial = expert_steps(1, experts, 3);
    for (const int ranks : {2, 4})
      EXPECT_TRUE(same_run(serial, expert_steps(ranks, experts, 3), kSameRunF64))
          << ranks << " ranks, capacity " << capacity;
  }
}

// Central differences through router, experts and the branch, at sizes that are not square.
TEST(ExpertHead, GradientOfItsInputIsItsSlope) {
  TestWorld world;
  const Model model =
      with_experts(world.rank, *world.comm, {.count = 3, .capacity = 0, .balance = 0});
  const ParameterStore store(world.device, all_units(model),
                             {.value_dtype = DType::F64, .grad_dtype = DType::F64});
  for (const Parameter* p : store.parameters())
    world.device.copy(p->value(), random_tensor(p->shape, DType::F64, world.device, p->name, 0.5));
  Layer& head = *model.layers[1];
  const Tensor x = random_tensor({2, 6, 2, 3}, DType::F64, world.device, "x");
  Saved saved;
  const Tensor y = head.forward(x.share(), saved, {});
  const Tensor dy = random_tensor(y.shape(), DType::F64, world.device, "dy");
  const Tensor dx = head.backward(dy.share(), saved, {});
  const auto loss = [&] {
    Saved nothing = Saved::nothing();
    return dot(head.forward(x.clone(), nothing, {}), dy);
  };
  EXPECT_TRUE(check_gradient(loss, x, dx));
}

// Every place of every image goes to one expert, wherever it lies.
TEST(GivenExperts, LoadIsOfAllPlacesOnAllRanks) {
  for (const int ranks : {1, 2, 4})
    launch({.ranks = ranks, .bind = false}, [&](const Rank& rank) {
      const Model model = with_experts(rank, rank.world, {.count = 4, .capacity = 1});
      const ParameterStore::Options types{.value_dtype = DType::F64, .grad_dtype = DType::F64};
      ParameterStore own(rank.device, make_units(model, Sync::ExpertData), types);
      ParameterStore store(rank.device, make_units(model), types);
      own.initialize(7);
      store.initialize(7);
      rank.trace.record(true);
      forward(model, small_images(rank, 0, 2 * rank.world.rank(), 2).images);
      const std::vector<std::int64_t> load = expert_load(rank.trace, 4, rank.world);
      ASSERT_EQ(load.size(), 4u);
      EXPECT_EQ(std::accumulate(load.begin(), load.end(), std::int64_t{0}), 2 * ranks * kPlaces)
          << "outside training no choice is dropped";
      EXPECT_GT(std::count_if(load.begin(), load.end(), [](std::int64_t rows) { return rows > 0; }),
                1);
    });
}

TEST(GivenExperts, SayHowManyRanksThereAre) {
  EXPECT_NE(message_of([] {
              launch({.ranks = 2, .timeout_seconds = 5, .bind = false}, [&](const Rank& rank) {
                ExpertHead head(rank, "experts", 4, {.count = 3}, rank.world);
              });
            }).find("3 experts over 2 ranks: expected a multiple of 2"),
            std::string::npos);
}

}  // namespace
}  // namespace aisc
