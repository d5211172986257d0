// Weights that are rounded while layers compute: what the loss sees, what the update moves.
#include "10_model_compression/straight_through.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/nn/linear.h"
#include "tests/support/gradient_check.h"
#include "tests/support/message_of.h"
#include "tests/support/numbers.h"
#include "tests/support/serial_run.h"

namespace aisc {
namespace {

constexpr Quantization kFour{.bits = 4, .group = 4};

// What a layer's matrices are while it computes: hooks behind StraightThrough see it.
class SeenInside final : public LayerHook {
 public:
  explicit SeenInside(const Model& model) : model_(model) {}
  void before_forward(std::size_t layer, const Pass& /*pass*/) override { see(layer, forward); }
  void before_backward(std::size_t layer, const Pass& /*pass*/, Saved& /*saved*/) override {
    see(layer, backward);
  }
  std::map<std::string, std::vector<double>> forward, backward;

 private:
  void see(std::size_t layer, std::map<std::string, std::vector<double>>& seen) {
    for (const Parameter* p : model_.layers[layer]->parameters())
      seen[p->name] = to_doubles(p->value());
  }
  const Model& model_;
};

// The sum of (x - target)^2 / 2 over all outputs, in F64.
class HalfSquares final : public Loss {
 public:
  double forward(Tensor x, const Tensor& targets, Saved& saved,
                 const Pass& /*pass*/) const override {
    double sum = 0;
    for (std::int64_t i = 0; i < x.count(); ++i) {
      double& off = x.data<double>()[i];
      off -= targets.data<double>()[i];
      sum += off * off / 2;
    }
    saved.push(std::move(x));
    return sum;
  }
  Tensor backward(Saved& saved, double factor) const override {
    Tensor off = saved.pop();
    ops::scale(off, off, factor);
    return off;
  }
};

// One linear layer in F64, "blocks.0.fc", with a hook around it.
struct OneLinear {
  OneLinear(std::int64_t in, std::int64_t out, const Quantization& how) {
    model.layers.push_back(std::make_unique<Linear>(world.rank, "blocks.0.fc", in, out));
    model.loss = std::make_unique<HalfSquares>();
    store = std::make_unique<ParameterStore>(
        world.device, make_units(model),
        ParameterStore::Options{.value_dtype = DType::F64, .grad_dtype = DType::F64});
    ops::fill(store->values(), 0);
    hook = std::make_unique<StraightThrough>(world.rank, model, how);
  }
  Parameter& weight() const { return *store->parameters()[0]; }
  double loss(const Tensor& x, const Tensor& y, Hooks hooks) const {
    return evaluate(model, x, y, hooks);
  }

  TestWorld world;
  Model model;
  std::unique_ptr<ParameterStore> store;
  std::unique_ptr<StraightThrough> hook;
};

// Weights 0.9 -3.5, a scale of 0.5: 0.9 is 1.8 steps and becomes 1.
TEST(StraightThrough, OneLayerByHand) {
  OneLinear one(2, 1, {.bits = 4, .per = Per::Channel});
  write_doubles(one.weight().value(), {0.9, -3.5});
  const auto expect_weight = [&](const char* when, const std::vector<double>& expected,
                                 const KnownMistake& mistake) {
    EXPECT_TRUE(numbers_are(std::string("the weight ") + when, one.weight().value(), expected,
                            {mistake}, 1e-6));
  };
  const KnownMistake unrounded{"the layer computes with the true weight", {0.9, -3.5}},
      lost{"the true weight was not put back: what is left of it is rounded", {1, -3.5}};
  Saved saved;
  Layer& layer = *one.model.layers[0];
  Device& device = one.world.device;
  one.hook->before_forward(0, {});
  expect_weight("in forward", {1, -3.5}, unrounded);
  const Tensor y = layer.forward(from_doubles({1, 2}, {1, 2}, DType::F64, device), saved, {});
  one.hook->after_forward(0, {}, saved);
  EXPECT_TRUE(numbers_are("1 2 times the rounded weight 1 -3.5: y", y, {-6},
                          {{"the layer saw the true weight 0.9 -3.5", {-6.1}}}, 1e-6));
  expect_weight("between forward and backward", {0.9, -3.5}, lost);
  EXPECT_EQ(device.ledger()[Purpose::Workspace].live_bytes, 0)
      << "bytes of true weights that are still kept, though they are back in their place";
  if (HasFailure()) return;
  one.hook->before_backward(0, {}, saved);
  expect_weight("in backward", {1, -3.5}, unrounded);
  const Tensor dx = layer.backward(from_doubles({1}, {1, 1}, DType::F64, device), saved, {});
  one.hook->after_backward(0, {});
  EXPECT_TRUE(numbers_are("dy 1 times the weight that forward saw: dx", dx, {1, -3.5},
                          {{"backward saw the true weight", {0.9, -3.5}}}, 1e-6));
  EXPECT_TRUE(numbers_are("the weight's gradient passes the rounding as it is: dW",
                          one.weight().grad(), {1, 2}));
  expect_weight("before the update", {0.9, -3.5}, lost);
}

TEST(StraightThrough, LossAndGradientsAreThoseOfTheRoundedWeights) {
  TestWorld world;
  TestGpt trained(world, odd_config()), rounded(world, odd_config());
  for (const Parameter* p : rounded.store.parameters())
    if (is_block_matrix(*p)) round_trip(p->value(), kFour);
  const Tensor tokens = random_tokens(world.device, 2, 11, 13, 1);
  const Tensor targets = random_tokens(world.device, 2, 11, 13, 2);
  StraightThrough hook(world.rank, trained.model, kFour);
  LayerHook* const hooks[] = {&hook};
  const double loss = forward_backward(trained.model, tokens, targets, {}, 1, hooks);
  EXPECT_EQ(loss, forward_backward(rounded.model, tokens, targets, {}, 1))
      << "the loss of a model whose matrices are rounded for good";
  for (std::size_t i = 0; i < trained.store.parameters().size(); ++i) {
    const Parameter& p = *trained.store.parameters()[i];
    EXPECT_TRUE(same_bits(p.grad(), rounded.store.parameters()[i]->grad()))
        << p.name << ": its gradient is not that of a model whose matrices are rounded for good. "
        << "Does backward see what forward saw?";
  }
}

// Asked of the loss itself, where the weights are the rounded ones and nothing rounds.
TEST(StraightThrough, GradientsAreTheSlopesAtTheRoundedPoint) {
  OneLinear one(5, 3, kFour);
  Device& device = one.world.device;
  const Tensor x = random_tensor({4, 5}, DType::F64, device, "x");
  const Tensor y = random_tensor({4, 3}, DType::F64, device, "y");
  device.copy(one.weight().value(), random_tensor({3, 5}, DType::F64, device, "w"));
  LayerHook* const hooks[] = {one.hook.get()};
  forward_backward(one.model, x, y, {}, 1, hooks);
  round_trip(one.weight().value(), kFour);
  EXPECT_TRUE(check_gradient([&] { return one.loss(x, y, {}); }, one.weight().value(),
                             one.weight().grad()));
}

TEST(StraightThrough, WeightsAreBackToTheLastBitAfterEachPass) {
  TestWorld world;
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16}) {
    TestGpt gpt(world, odd_config(dtype), 1, dtype);
    const std::vector<double> before = to_doubles(gpt.store.values());
    StraightThrough hook(world.rank, gpt.model, kFour);
    LayerHook* const hooks[] = {&hook};
    const Tensor tokens = random_tokens(world.device, 2, 11, 13, 1);
    evaluate(gpt.model, tokens, tokens, hooks);
    EXPECT_TRUE(before == to_doubles(gpt.store.values())) << name_of(dtype) << ", after a forward";
    forward_backward(gpt.model, tokens, tokens, {}, 1, hooks);
    EXPECT_TRUE(before == to_doubles(gpt.store.values())) << name_of(dtype) << ", after a backward";
  }
}

TEST(StraightThrough, RoundsTheBlocksMatricesAndNothingElse) {
  TestWorld world;
  TestGpt gpt(world, odd_config());
  StraightThrough hook(world.rank, gpt.model, kFour);
  SeenInside seen(gpt.model);
  LayerHook* const hooks[] = {&hook, &seen};
  const Tensor tokens = random_tokens(world.device, 2, 11, 13, 1);
  forward_backward(gpt.model, tokens, tokens, {}, 1, hooks);
  int matrices = 0;
  for (const Parameter* p : gpt.store.parameters()) {
    const Tensor expected(p->shape, DType::F64, world.device);
    world.device.copy(expected, p->value());
    const bool rounds = p->name.starts_with("blocks.") && p->shape.rank() == 2;
    if (rounds) round_trip(expected, kFour), ++matrices;
    EXPECT_EQ(seen.forward[p->name], to_doubles(expected)) << p->name << " in forward";
    EXPECT_EQ(seen.backward[p->name], to_doubles(expected)) << p->name << " in backward";
  }
  EXPECT_EQ(matrices, 8) << "four linear layers in each of two blocks";
}

TEST(StraightThrough, RoundsWhatIsAskedFor) {
  TestWorld world;
  TestGpt gpt(world, odd_config());
  StraightThrough hook(world.rank, gpt.model, kFour,
                       [](const Parameter& p) { return p.name == "wte.weight" || p.decay; });
  SeenInside seen(gpt.model);
  LayerHook* const hooks[] = {&hook, &seen};
  evaluate(gpt.model, random_tokens(world.device, 1, 11, 13, 1),
           random_tokens(world.device, 1, 11, 13, 2), hooks);
  const Parameter& table = *gpt.store.parameters()[0];
  EXPECT_NE(seen.forward[table.name], to_doubles(table.value()));
}

TEST(StraightThrough, HoldsOneLayersMatricesTwice) {
  TestWorld world;
  TestGpt gpt(world, odd_config());
  StraightThrough hook(world.rank, gpt.model, kFour);
  const auto workspace = [&] { return world.device.ledger()[Purpose::Workspace].live_bytes; };
  const std::int64_t before = workspace();
  Saved saved;
  for (std::size_t layer = 0; layer < gpt.model.layers.size(); ++layer) {
    std::int64_t bytes = 0;
    for (const Parameter* p : gpt.model.layers[layer]->parameters())
      if (is_block_matrix(*p)) bytes += p->shape.count() * 8;
    hook.before_forward(layer, {});
    EXPECT_EQ(workspace() - before, bytes) << gpt.model.layers[layer]->name();
    hook.after_forward(layer, {}, saved);
    EXPECT_EQ(workspace(), before) << gpt.model.layers[layer]->name() << ": copies are freed";
  }
}

// ---- in training --------------------------------------------------------------------------------

std::vector<RunRecord> quantized_run(TrainConfig config, int ranks = 1) {
  config.batch = 20;
  return run_layout({.ranks = ranks}, config, 3, quantize_aware(kFour, {}));
}

TEST(StraightThrough, MicroBatchesRanksAndRecomputationAddUpToTheSame) {
  const std::vector<RunRecord> whole = quantized_run(odd_training());
  EXPECT_TRUE(same_steps(whole, quantized_run(odd_training(2)))) << "two micro-batches";
  EXPECT_TRUE(same_steps(whole, quantized_run(odd_training(1, "block")))) << "blocks recomputed";
  EXPECT_TRUE(same_steps(whole, quantized_run(odd_training(), 2))) << "two ranks";
}

TEST(StraightThrough, ADeviceWithoutNumbersRoundsNothing) {
  const Machine machine = find_machine("dgx-a100");
  launch(on_machine(machine, 1, {.meta = true}), [&](Rank rank) {
    const GptConfig config = odd_config();
    Trainer trainer(rank, odd_training(), quantize_aware(kFour, {}));
    const std::vector<std::uint8_t> text = some_text();
    trainer.step(BatchSampler(text, config.context, 1));
    EXPECT_EQ(trainer.steps_taken(), 1);
  });
}

// Inputs that are nearly the same number: what they are multiplied by together counts, and not each
// weight. Rounding alone rounds each weight; training finds which to round up and which down.
TEST(StraightThrough, RecoversWhatRoundingLost) {
  constexpr std::int64_t kIn = 8, kOut = 4, kSamples = 32;
  const Quantization how{.bits = 4, .per = Per::Channel};
  OneLinear one(kIn, kOut, how);
  Device& device = one.world.device;
  const Tensor x = random_tensor({kSamples, kIn}, DType::F64, device, "x", 0.2);
  for (std::int64_t n = 0; n < kSamples; ++n)
    for (std::int64_t i = 0; i < kIn; ++i) x.data<double>()[n * kIn + i] += n % 2 == 0 ? 1 : -1;
  const Tensor best = random_tensor({kOut, kIn}, DType::F64, device, "w");
  const Tensor y({kSamples, kOut}, DType::F64, device);
  ops::matmul(y, x, best, {.transpose = ops::Transpose::Second});
  const View weight = one.weight().value();
  device.copy(weight, best);
  EXPECT_NEAR(one.loss(x, y, {}), 0, 1e-9) << "before rounding";
  LayerHook* const hooks[] = {one.hook.get()};
  const double rounded = one.loss(x, y, hooks);
  for (int step = 0; step < 200; ++step) {
    one.store->clear_grads();
    forward_backward(one.model, x, y, {}, 1.0 / kSamples, hooks);
    for (std::int64_t i = 0; i < weight.count(); ++i)
      weight.data<double>()[i] -= 0.01 * one.weight().grad().data<double>()[i];
  }
  round_trip(weight, how);
  const double after = one.loss(x, y, {});
  EXPECT_LT(after, 0.5 * rounded)
      << "rounding alone leaves a loss of " << rounded << ", training with it " << after
      << ". A loss that does not fall at all: are the true weights moved, or rounded ones?";
}

TEST(StraightThroughGiven, SaysWhatIsWrong) {
  EXPECT_EQ(message_of([] { quantize_aware({.bits = 2}, {}); }),
            "quantize: 2 bits, expected 8 or 4");
  EXPECT_EQ(quantize_aware({}, {}).hooks.size(), 1u);
}

}  // namespace
}  // namespace aisc
