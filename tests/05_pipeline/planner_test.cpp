// What layers take by their machine's figures and by the clock, and the stages of a GPT.
#include "05_pipeline/planner.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "common/model/emulated_device.h"
#include "common/nn/driver.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

using Begins = std::vector<std::int64_t>;

// All its figures are powers of two: times are sums of such, which are exact, and == compares them.
Machine exact_machine() {
  Machine machine = find_machine("limitless");
  machine.flops = {{DType::F32, 0x1p40}};
  machine.vector_flops = 0x1p38;
  machine.memory_bandwidth = 0x1p35;
  machine.launch_seconds = 0x1p-20;
  machine.host_link = {0x1p-18, 0x1p-32};
  return machine;
}

GptConfig small_gpt() {
  return {.layers = 3, .heads = 2, .width = 16, .context = 8, .vocabulary = 250, .dropout = 0.1};
}

double sum_of(const std::vector<LayerSeconds>& layers) {
  double sum = 0;
  for (const LayerSeconds& layer : layers) sum += layer.forward + layer.backward;
  return sum;
}

// A rank without numbers with a GPT on it, and a micro-batch.
struct MetaGpt {
  explicit MetaGpt(const Rank& rank, const GptConfig& config = small_gpt())
      : model(make_gpt(rank, config)),
        store(rank.device, make_units(model), {}),
        ids({2, config.context}, DType::I32, rank.device) {}

  Model model;
  ParameterStore store;
  Tensor ids;  // (B, T)
};

void on_one_rank(const std::function<void(const Rank&)>& body) {
  const Machine machine = exact_machine();
  launch(on_machine(machine, 1, {.meta = true}), body);
}

TEST(LayerSecondsGiven, AddUpToTheClock) {
  double first = 0, second = 0;
  on_one_rank([&](const Rank& rank) {
    MetaGpt gpt(rank);
    const double begin = rank.clock.now();
    forward_backward(gpt.model, gpt.ids, gpt.ids, {}, 1);
    first = rank.clock.now() - begin;
    forward_backward(gpt.model, gpt.ids, gpt.ids, {.micro_batch = 1}, 1);
    second = rank.clock.now() - begin - first;
  });
  on_one_rank([&](const Rank& rank) {
    MetaGpt gpt(rank);
    EXPECT_EQ(sum_of(layer_seconds(rank, gpt.model, gpt.ids, gpt.ids)), first);
    EXPECT_EQ(sum_of(layer_seconds(rank, gpt.model, gpt.ids, gpt.ids)), second);
  });
  EXPECT_EQ(sum_of(gpt_layer_seconds(exact_machine(), small_gpt(), 2, 8)), second);
  EXPECT_GT(second, first) << "gradients that are added to are read as well";
}

// A norm of N = 16 rows of C = 16: 8 N C FLOPs are less than its bytes take; of the input and the
// output, of two numbers a row and two a column.
TEST(LayerSecondsGiven, OfANormByHand) {
  on_one_rank([&](const Rank& rank) {
    MetaGpt gpt(rank);
    const auto seconds = layer_seconds(rank, gpt.model, gpt.ids, gpt.ids);
    ASSERT_EQ(seconds.size(), 8U) << "tokens, positions, dropout, 3 blocks, norm, head";
    const double bytes = 4 * (2 * 16 * 16 + 2 * 16 + 2 * 16);
    EXPECT_EQ(seconds[6].forward, 0x1p-20 + bytes * 0x1p-35);
    for (std::size_t block : {4, 5}) {
      EXPECT_EQ(seconds[block].forward, seconds[3].forward) << "blocks are alike";
      EXPECT_EQ(seconds[block].backward, seconds[3].backward);
      EXPECT_GT(seconds[block].backward, seconds[block].forward) << "two products for one";
    }
  });
}

// Takes a second wherever it is called.
class SlowHook final : public LayerHook {
 public:
  explicit SlowHook(Clock& clock) : clock_(clock) {}
  void before_forward(std::size_t, const Pass&) override { clock_.advance(1); }
  void after_forward(std::size_t, const Pass&, Saved&) override { clock_.advance(1); }
  void before_backward(std::size_t, const Pass&, Saved&) override { clock_.advance(1); }
  void after_backward(std::size_t, const Pass&) override { clock_.advance(1); }
  void complete(std::size_t) override { clock_.advance(1); }

 private:
  Clock& clock_;
};

TEST(LayerTimerGiven, CountsLayersAloneAndAddsUp) {
  std::vector<LayerSeconds> alone;
  on_one_rank([&](const Rank& rank) {
    MetaGpt gpt(rank);
    alone = layer_seconds(rank, gpt.model, gpt.ids, gpt.ids);
  });
  on_one_rank([&](const Rank& rank) {
    MetaGpt gpt(rank);
    SlowHook slow(rank.clock);
    LayerTimer timer(rank, gpt.model.layers.size());
    const std::vector<LayerHook*> hooks{&slow, &timer};
    for (const int times : {1, 2}) {
      gpt.store.clear_grads();
      forward_backward(gpt.model, gpt.ids, gpt.ids, {}, 1, hooks);
      for (std::size_t i = 0; i + 1 < alone.size(); ++i) {  // the last has the loss
        EXPECT_EQ(timer.seconds()[i].forward, times * alone[i].forward) << "layer " << i;
        EXPECT_EQ(timer.seconds()[i].backward, times * alone[i].backward) << "layer " << i;
      }
    }
    EXPECT_GT(alone.back().forward, timer.seconds().back().forward / 2) << "the loss is in it";
    EXPECT_GT(alone.back().backward, timer.seconds().back().backward / 2);
  });
}

TEST(LayerTimerGiven, MeasuresOnARealDevice) {
  TestWorld world;
  const GptConfig config = odd_config(DType::F32);
  const Model model = make_gpt(world.rank, config);
  ParameterStore store(world.device, make_units(model), {});
  store.initialize(1);
  const Tensor tokens = random_tokens(world.device, 2, 11, 13, 1);
  const double begin = world.clock.now();
  const std::vector<LayerSeconds> seconds = layer_seconds(world.rank, model, tokens, tokens);
  const double elapsed = world.clock.now() - begin;
  EXPECT_LE(sum_of(seconds), elapsed) << "no time counts twice";
  for (std::size_t i = 3; i < seconds.size(); ++i) {
    EXPECT_GT(seconds[i].forward, 0) << "layer " << i;
    EXPECT_GT(seconds[i].backward, 0) << "layer " << i;
  }
}

TEST(GptSecondsGiven, RecomputationIsAForwardMore) {
  const GptConfig config{.layers = 4, .heads = 2, .width = 32, .context = 16, .vocabulary = 100};
  GptParts parts = gpt2_parts();
  const auto all = gpt_layer_seconds(exact_machine(), config, 3, 16, parts);
  parts.recompute_blocks = 1;
  const auto again = gpt_layer_seconds(exact_machine(), config, 3, 16, parts);
  ASSERT_EQ(again.size(), all.size());
  for (std::size_t block = 3; block < 7; ++block) {
    EXPECT_EQ(again[block].forward, all[block].forward);
    EXPECT_EQ(again[block].backward, all[block].forward + all[block].backward);
  }
}

// The head is 2 V C, a block 24 C C FLOPs a token: it is slower from V = 12 C on.
TEST(GptSecondsGiven, AHeadCanBeSlowerThanABlock) {
  const auto head_over_block = [](std::int64_t width, std::int64_t vocabulary) {
    const auto seconds = gpt_layer_seconds(
        find_machine("limitless"),
        {.layers = 2, .heads = 4, .width = width, .context = 64, .vocabulary = vocabulary}, 4, 64);
    return seconds.back().forward / seconds[3].forward;
  };
  EXPECT_GT(head_over_block(64, 50257), 5);
  EXPECT_LT(head_over_block(4096, 1000), 0.2);
}

// GPT-3's 175 billion weights need 700 GB for values alone; its machine has 80.
TEST(GptSecondsGiven, AModelThatFitsNoDeviceIsPlannedAllTheSame) {
  const GptConfig gpt3{
      .layers = 96, .heads = 96, .width = 12288, .context = 2048, .vocabulary = 50257};
  const auto seconds = gpt_layer_seconds(find_machine("dgx-a100"), gpt3, 1, 2048);
  EXPECT_EQ(seconds.size(), 101U);
  EXPECT_GT(seconds[3].forward, seconds.back().forward) << "a block has 12 C C, the head V C";
}

// Of 8 layers, so that a sum tells of which it is.
std::vector<LayerSeconds> powers_of_two() {
  std::vector<LayerSeconds> layers;
  for (double bit = 1; bit < 256; bit *= 2)
    layers.push_back({.forward = bit, .backward = 256 * bit});
  return layers;
}
double of(double bits) { return bits * 257; }

TEST(GptSecondsGiven, EndsBelongToTheirBlocks) {
  std::vector<LayerSeconds> layers = powers_of_two();
  EXPECT_EQ(block_seconds({.layers = 3}, layers),
            (std::vector<double>{of(1 + 2 + 4 + 8), of(16), of(32 + 64 + 128)}));
  layers.resize(6);
  EXPECT_EQ(block_seconds({.layers = 1}, layers), std::vector<double>{of(63)});
  EXPECT_TRUE(error_says([&] { block_seconds({.layers = 2}, layers); },
                         {"6 layers for 2 blocks, expected 5 more than blocks"}));
}

TEST(GptSecondsGiven, EndsMayBePartsOfTheirOwn) {
  const std::vector<LayerSeconds> layers = powers_of_two();
  EXPECT_EQ(part_seconds({.layers = 3}, layers),
            (std::vector<double>{of(1 + 2 + 4), of(8), of(16), of(32), of(64 + 128)}));
  EXPECT_TRUE(error_says([&] { part_seconds({.layers = 2}, layers); },
                         {"8 layers for 2 blocks, expected 5 more than blocks"}));
}

TEST(GptStagesGiven, MayBeTheEndsAlone) {
  const GptConfig config{.layers = 2};
  using Ranges = std::vector<BlockRange>;
  const BlockRange first{.begin = 0, .end = 1, .embedding = false},
      last{.begin = 1, .end = 2, .head = false};
  EXPECT_EQ(part_stages(config, Begins{0, 1, 2, 3}), (Ranges{{0, 0}, first, last, {2, 2}}));
  EXPECT_EQ(part_stages(config, Begins{0, 2, 3}), (Ranges{{0, 1}, last, {2, 2}}));
  EXPECT_EQ(part_stages(config, Begins{0, 1, 2}), (Ranges{{0, 0}, first, {1, 2}}));
  EXPECT_EQ(part_stages(config, Begins{0, 2}), (Ranges{{0, 1}, {1, 2}})) << "as gpt_stages";
  EXPECT_EQ(part_stages(config, Begins{0}), Ranges({{0, 2}}));
  EXPECT_TRUE(error_says([&] { part_stages(config, Begins{0, 4}); }, {"stage 1"}));
}

// Stages by their begins, put one behind the other, are the layers of the whole model.
TEST(GptStagesGiven, TogetherAreTheModel) {
  TestWorld world;
  GptConfig config = odd_config();
  config.layers = 5;
  const auto names = [](const Model& model) {
    std::vector<std::string> all;
    for (const auto& layer : model.layers) all.push_back(layer->name());
    return all;
  };
  for (const Begins& begins : {Begins{0}, {0, 1}, {0, 4}, {0, 2, 3}, {0, 1, 2, 3, 4}}) {
    std::vector<std::string> all;
    std::size_t losses = 0;
    const std::vector<BlockRange> stages = gpt_stages(config, begins);
    ASSERT_EQ(stages.size(), begins.size());
    for (const BlockRange& blocks : stages) {
      const Model stage = make_gpt(world.rank, config, gpt2_parts(), blocks);
      for (const std::string& name : names(stage)) all.push_back(name);
      if (stage.loss) ++losses;
    }
    EXPECT_EQ(all, names(make_gpt(world.rank, config)))
        << "begins " << ::testing::PrintToString(begins);
    EXPECT_EQ(losses, 1U) << "begins " << ::testing::PrintToString(begins);
  }
}

TEST(GptStagesGiven, RefuseWhatIsNoCut) {
  const auto says = [](const Begins& begins, const std::string& message) {
    return error_says([&] { gpt_stages({.layers = 3}, begins); }, {message});
  };
  EXPECT_TRUE(says({}, "0 stages, the first at no block, expected 0"));
  EXPECT_TRUE(says({1, 2}, "2 stages, the first at block 1, expected 0"));
  EXPECT_TRUE(says({0, 2, 2}, "stage 1 has blocks 2 to 2 of 3"));
  EXPECT_TRUE(says({0, 3}, "stage 1 has blocks 3 to 3 of 3"));
  EXPECT_TRUE(says({0, 4, 5}, "stage 0 has blocks 0 to 4 of 3"));
}

TEST(LayerSecondsGiven, RefuseWhatIsNoWholeModel) {
  on_one_rank([&](const Rank& rank) {
    const Model stage = make_gpt(rank, small_gpt(), gpt2_parts(), {0, 1});
    const Tensor ids({1, 8}, DType::I32, rank.device);
    EXPECT_TRUE(error_says([&] { layer_seconds(rank, stage, ids, ids); },
                           {"a model of 4 layers without a loss, expected"}));
    Model nothing;
    EXPECT_TRUE(error_says([&] { layer_seconds(rank, nothing, ids, ids); }, {"0 layers"}));
  });
  const auto says = [](std::int64_t samples, std::int64_t tokens, const std::string& message) {
    return error_says([&] { gpt_layer_seconds(exact_machine(), small_gpt(), samples, tokens); },
                      {message});
  };
  EXPECT_TRUE(says(0, 8, "0 samples of 8 tokens, expected 1 or more of both"));
  EXPECT_TRUE(says(1, 0, "1 samples of 0 tokens"));
  EXPECT_TRUE(says(1, 9, "1 samples of 9 tokens, expected 1 or more of both and at most 8"));
  EXPECT_TRUE(error_says([] { gpt_layer_seconds(exact_machine(), {.heads = 5}, 1, 1); },
                         {"gpt: width 768 is not a multiple of heads 5"}));
}

}  // namespace
}  // namespace aisc
