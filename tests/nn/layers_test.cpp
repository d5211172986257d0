// Every layer: dx and the gradients of its parameters against central differences of its forward.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <tuple>

#include "common/nn/block.h"
#include "common/nn/cross_entropy.h"
#include "common/nn/dropout.h"
#include "common/nn/embedding.h"
#include "common/nn/layer_norm.h"
#include "common/nn/linear.h"
#include "common/nn/sequence.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/compare.h"
#include "tests/support/error_says.h"
#include "tests/support/gradient_check.h"
#include "tests/support/ledger_checks.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

using MakeLayer = std::function<std::unique_ptr<Layer>(const Rank&)>;

struct LayerCase {
  const char* name;
  Shape input;
  MakeLayer make;
};

// The loss is a weighted sum of the layer's output, so dy is the weights.
void check_layer(const LayerCase& layer_case, DeviceKind kind, Pass pass) {
  TestWorld world(kind);
  // An emulated GPU takes its time: of it fewer elements are looked at.
  const GradientCheck check{.samples = kind == DeviceKind::Cpu ? 0 : 6};
  const auto layer = layer_case.make(world.rank);
  ParameterStore store(world.device, {{"layer", layer->parameters()}},
                       {.value_dtype = DType::F64, .grad_dtype = DType::F64});
  for (const Parameter* p : store.parameters())
    world.device.copy(p->value(), random_tensor(p->shape, DType::F64, world.device, p->name, 0.5));
  const Tensor x = random_tensor(layer_case.input, DType::F64, world.device, "x");
  const auto forward = [&](Saved& saved) { return layer->forward(x.clone(), saved, pass); };
  Saved saved;
  const Tensor y = forward(saved);
  const Tensor weights = random_tensor(y.shape(), DType::F64, world.device, "weights");
  const auto loss = [&] {
    Saved nothing = Saved::nothing();
    return dot(forward(nothing), weights);
  };
  // dy is shared, as in a residual connection: the layer must leave it alone.
  const Tensor dy = weights.clone();
  const Tensor dx = layer->backward(dy.share(), saved, pass);
  EXPECT_EQ(saved.size(), 0u) << "backward pops what forward pushed";
  EXPECT_TRUE(same_bits(dy, weights)) << "backward changed a dy that others hold";
  EXPECT_TRUE(check_gradient(loss, x, dx, check)) << layer_case.name << ": dx";
  for (const Parameter* p : store.parameters())
    EXPECT_TRUE(check_gradient(loss, p->value(), p->grad(), check)) << p->name;

  // A second contribution accumulates: everything doubles.
  const std::vector<double> once = to_doubles(store.grads());
  Saved again;
  forward(again);
  layer->backward(dy.share(), again, pass);
  std::vector<double> twice = once;
  for (double& g : twice) g *= 2;
  EXPECT_TRUE(all_close(store.grads(), twice, kF64Tolerance));
}

class LayerGradient : public ::testing::TestWithParam<std::tuple<LayerCase, DeviceKind>> {
 protected:
  void SetUp() override {
    if (!has_device(kind_)) GTEST_SKIP() << "no GPU";
  }
  const LayerCase layer_ = std::get<0>(GetParam());
  const DeviceKind kind_ = std::get<1>(GetParam());
};

TEST_P(LayerGradient, MatchesCentralDifferences) { check_layer(layer_, kind_, {}); }

TEST_P(LayerGradient, MatchesCentralDifferencesAtAnotherStepAndPosition) {
  check_layer(layer_, kind_, {.step = 9, .first_sample = 3, .tokens = {.first = 2}});
}

const LayerCase kLayers[] = {
    {"Linear",
     {2, 3, 5},
     [](const Rank& rank) { return std::make_unique<Linear>(rank, "linear", 5, 7); }},
    {"LinearOneRow",
     {1, 1, 1},
     [](const Rank& rank) { return std::make_unique<Linear>(rank, "linear", 1, 1); }},
    {"LayerNorm",
     {2, 3, 7},
     [](const Rank& rank) { return std::make_unique<LayerNorm>(rank, "norm", 7); }},
    {"Dropout",
     {2, 3, 5},
     [](const Rank& rank) { return std::make_unique<Dropout>(rank, "dropout", 0.4, 1); }},
    {"Attention",
     {2, 5, 6},
     [](const Rank& rank) {
       const GptParts parts = gpt2_parts();
       return parts.attention({rank, "attention", {.heads = 3, .width = 6, .dropout = 0.2}, parts});
     }},
    {"Mlp",
     {2, 3, 4},
     [](const Rank& rank) {
       const GptParts parts = gpt2_parts();
       return parts.mlp({rank, "mlp", {.heads = 1, .width = 4, .dropout = 0.2}, parts});
     }},
    {"Block",
     {2, 4, 6},
     [](const Rank& rank) {
       const GptParts parts = gpt2_parts();
       return parts.block({rank, "blocks.0", {.heads = 2, .width = 6, .dropout = 0.2}, parts});
     }},
};

std::string layer_name(const ::testing::TestParamInfo<std::tuple<LayerCase, DeviceKind>>& info) {
  const auto& [layer, kind] = info.param;
  const std::string name = layer.name;
  return kind == DeviceKind::Cpu ? name : name + "_" + device_kind_name(kind);
}

INSTANTIATE_TEST_SUITE_P(All, LayerGradient,
                         ::testing::Combine(::testing::ValuesIn(kLayers),
                                            ::testing::ValuesIn(device_kinds())),
                         layer_name);

class LayersOnDevices : public PerWorld {};
INSTANTIATE_TEST_SUITE_P(All, LayersOnDevices, ::testing::ValuesIn(device_kinds()),
                         device_kind_test_name);

TEST_P(LayersOnDevices, EmbeddingGradientOfBothTablesMatchesCentralDifferences) {
  TestWorld world(GetParam());
  const auto layers =
      in_sequence(world.rank, "embedding",
                  std::make_unique<Embedding>(world.rank, token_table(5, 5, 3), DType::F64),
                  std::make_unique<Positions>(world.rank, 6, 3));
  Layer& layer = *layers;
  ParameterStore store(world.device, layer.units(),
                       {.value_dtype = DType::F64, .grad_dtype = DType::F64});
  store.initialize(1);
  Tensor tokens = ids_tensor({0, 4, 4, 1, 4, 0}, world.device).reshaped({2, 3});
  const Pass pass{.tokens = {.first = 2}};
  Saved saved;
  const Tensor y = layer.forward(tokens.share(), saved, pass);
  EXPECT_EQ(y.shape(), (Shape{2, 3, 3}));
  const Tensor weights = random_tensor(y.shape(), DType::F64, world.device, "weights");
  EXPECT_FALSE(layer.backward(weights.clone(), saved, pass));
  const auto loss = [&] {
    Saved nothing = Saved::nothing();
    return dot(layer.forward(tokens.share(), nothing, pass), weights);
  };
  for (const Parameter* p : store.parameters())
    EXPECT_TRUE(check_gradient(loss, p->value(), p->grad())) << p->name;
}

TEST_P(LayersOnDevices, CrossEntropyGradientMatchesCentralDifferences) {
  TestWorld world(GetParam());
  const CrossEntropy layer(world.rank, 5);  // of 8 columns, three are padding
  const Tensor logits = random_tensor({2, 3, 8}, DType::F64, world.device, "logits");
  const Tensor targets = ids_tensor({4, 0, -1, 2, 2, 1}, world.device).reshaped({2, 3});
  const auto loss = [&] {
    Saved nothing = Saved::nothing();
    return 0.25 * layer.forward(logits.clone(), targets, nothing, {});
  };
  Saved saved;
  layer.forward(logits.clone(), targets, saved, {});
  EXPECT_TRUE(check_gradient(loss, logits, layer.backward(saved, 0.25)));
}

// Smoothed labels are training's: what is reported outside it compares with any other model.
TEST_P(LayersOnDevices, CrossEntropyGradientIsOfSmoothedLabelsInTrainingAlone) {
  TestWorld world(GetParam());
  const CrossEntropy plain(world.rank, 5), smoothed(world.rank, 5, 0.1);
  const Tensor logits = random_tensor({2, 3, 8}, DType::F64, world.device, "logits");
  const Tensor targets = ids_tensor({4, 0, -1, 2, 2, 1}, world.device).reshaped({2, 3});
  const auto loss_of = [&](const CrossEntropy& layer, const Pass& pass) {
    Saved nothing = Saved::nothing();
    return layer.forward(logits.clone(), targets, nothing, pass);
  };
  const auto loss = [&] { return 0.25 * loss_of(smoothed, {}); };
  Saved saved;
  EXPECT_NE(smoothed.forward(logits.clone(), targets, saved, {}), loss_of(plain, {}));
  EXPECT_TRUE(check_gradient(loss, logits, smoothed.backward(saved, 0.25)));
  EXPECT_EQ(loss_of(smoothed, {.training = false}), loss_of(plain, {.training = false}));
}

TEST_P(LayersOnDevices, DropoutDrawsTheSameMaskForAnySplitOfTheBatchAndTheSequence) {
  TestWorld world(GetParam());
  const Dropout layer(world.rank, "dropout", 0.5, 1);
  Saved nothing = Saved::nothing();
  const auto ones = [&](std::int64_t B, std::int64_t T) {
    Tensor x({B, T, 3}, DType::F32, world.device);
    ops::fill(x, 1);
    return x;
  };
  const Tensor whole = layer.forward(ones(4, 6), nothing, {.step = 2});
  for (std::int64_t b = 0; b < 4; b += 2)
    for (std::int64_t t = 0; t < 6; t += 3) {
      const Tensor part = layer.forward(ones(2, 3), nothing,
                                        {.step = 2, .first_sample = b, .tokens = {.first = t}});
      for (std::int64_t i = 0; i < 2; ++i)
        EXPECT_TRUE(
            same_bits(part.view().flat(i * 9, 9), whole.view().flat(((b + i) * 6 + t) * 3, 9)));
    }
}

TEST_P(LayersOnDevices, DropoutIsTheIdentityOutsideTraining) {
  TestWorld world(GetParam());
  const Dropout layer(world.rank, "dropout", 0.5, 1);
  Saved nothing = Saved::nothing();
  const Tensor x = random_tensor({2, 3, 4}, DType::F32, world.device, "x");
  EXPECT_TRUE(same_bits(layer.forward(x.clone(), nothing, {.training = false}), x));
}

TEST(Saved, AsksForAForwardBeforeABackward) {
  Saved saved;
  EXPECT_TRUE(error_says([&] { saved.pop(); }, {"Saved", "without its forward"}));
}

// A part that does nothing: what it returns is what others hold, too.
class Same final : public Layer {
 public:
  explicit Same(const Rank& rank) : Layer(rank, "same") {}
  Tensor forward(Tensor x, Saved&, const Pass&) const override { return x; }
  Tensor backward(Tensor dy, Saved&, const Pass&) override { return dy; }
};

TEST_P(LayersOnDevices, BlockWritesIntoNothingThatAPartReturnsShared) {
  TestWorld world(GetParam());
  const auto same = [&] { return std::make_unique<Same>(world.rank); };
  Block block(world.rank, "block", same(), same(), same(), same());
  const Tensor x = random_tensor({2, 3, 4}, DType::F32, world.device, "x"), before = x.clone();
  Tensor four_times(x.shape(), x.dtype(), x.device());
  ops::scale(four_times, x, 4);
  Saved saved;
  EXPECT_TRUE(same_bits(block.forward(x.share(), saved, {}), four_times));
  EXPECT_TRUE(same_bits(block.backward(x.share(), saved, {}), four_times));
  EXPECT_TRUE(same_bits(x, before));
}

// Of a block with C columns and n tokens are kept: the inputs of both norms and of the four
// products, qkv, the attention's output (once: the projection's input is the same tensor) and the
// MLP's hidden values before and after GELU: (1 + 1 + 3 + 1 + 1 + 1 + 4 + 4) n C numbers, and five
// numbers a token: mean and rstd of both norms, and one log-sum-exp a head.
TEST_P(LayersOnDevices, BlockKeepsSixteenNumbersPerTokenAndColumn) {
  TestWorld world(GetParam());
  constexpr std::int64_t B = 2, T = 8, C = 12, H = 3, n = B * T;
  const GptParts parts = gpt2_parts();
  const auto block = parts.block({world.rank, "blocks.0", {.heads = H, .width = C}, parts});
  ParameterStore store(world.device, block->units(), {});
  store.initialize(1);
  Tensor x = random_tensor({B, T, C}, DType::F32, world.device, "x");
  const std::int64_t input = static_cast<std::int64_t>(x.bytes());
  const std::int64_t before = world.device.ledger()[Purpose::Activations].live_bytes - input;
  Saved saved;
  {
    const Tensor y = block->forward(std::move(x), saved, {});
    EXPECT_EQ(y.owners(), 1);
  }
  EXPECT_TRUE(live_bytes_are(world.device, Purpose::Activations,
                             before + 4 * (16 * n * C + 4 * n + H * n)));
}

}  // namespace
}  // namespace aisc
