// Layers that run again in place of remembering: the same bits, fewer bytes, one forward more. And
// what layers keep, counted and held against the device's ledger.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/nn/dropout.h"
#include "common/nn/embedding.h"
#include "common/nn/sequence.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/nn/stored_core.h"
#include "tests/support/error_says.h"
#include "tests/support/gradient_check.h"
#include "tests/support/ledger_checks.h"

namespace aisc {
namespace {

// What a step leaves behind, and what it kept in between.
struct Step {
  double loss;
  std::vector<double> gradients;
  std::int64_t bytes;            // of all layers' Saved after the forward pass
  std::int64_t attention_spans;  // times that an attention ran forward or backward
};

// Remembers how much is kept at the end of the forward pass.
Step step(const GptConfig& config, const GptParts& parts, bool defer = false) {
  TestWorld world;
  TestGpt gpt(world, config, 1, config.dtype, parts);
  const Tensor tokens = random_tokens(world.device, 2, config.context, 13, 2);
  world.trace.record(true);
  std::vector<Saved> saved(gpt.model.layers.size() + 1);
  DeferredGrads deferred;
  const Pass pass{.step = 3, .first_sample = 2, .deferred = defer ? &deferred : nullptr};
  Tensor x = forward_layers(gpt.model, tokens.share(), saved, pass);
  Step result{};
  result.bytes = bytes_of({saved.data(), saved.size() - 1});
  result.loss = gpt.model.loss->forward(std::move(x), tokens, saved.back(), {});
  backward_layers(gpt.model, gpt.model.loss->backward(saved.back(), 0.25), saved, pass);
  deferred.run_all();
  result.gradients = to_doubles(gpt.store.grads());
  for (const TraceEvent& event : world.trace.events())
    result.attention_spans += event.part == "attention";
  return result;
}

GptParts every(std::int64_t blocks) {
  GptParts parts = gpt2_parts();
  parts.recompute_blocks = blocks;
  return parts;
}

GptParts recomputed_core(GptParts parts) {
  parts.core = [core = parts.core](const GptParts::Wanted& w) {
    return std::make_unique<Recomputed>(w.rank, core(w));
  };
  return parts;
}

TEST(Recomputed, HasTheSameBitsWithDropoutInEveryType) {
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16})
    for (const bool defer : {false, true}) {
      GptConfig config = odd_config(dtype, 0.3);
      config.layers = 3;
      const Step plain = step(config, gpt2_parts(), defer);
      for (const GptParts& parts : {every(1), every(2), every(5), recomputed_core(gpt2_parts())}) {
        const Step again = step(config, parts, defer);
        EXPECT_EQ(again.loss, plain.loss);
        EXPECT_EQ(again.gradients, plain.gradients);
        EXPECT_EQ(again.attention_spans, plain.attention_spans + 3) << "one forward more";
      }
    }
}

// n tokens, C columns, H heads, L blocks; F32. A block keeps 16 n C numbers, mean and rstd of two
// norms and a log-sum-exp a head (BlockKeepsSixteenNumbersPerTokenAndColumn); outside the blocks
// are the tokens, and the last norm's input, mean, rstd and output, which is the head's input.
TEST(Recomputed, KeepsTheBytesThatAreComputed) {
  GptConfig config = odd_config(DType::F32);
  config.layers = 4;
  const std::int64_t n = 2 * config.context, C = config.width, H = config.heads, L = config.layers;
  const std::int64_t block = 4 * (16 * n * C + 4 * n + H * n);
  const std::int64_t outside = 4 * (n + 2 * n * C + 2 * n);
  EXPECT_EQ(step(config, gpt2_parts()).bytes, L * block + outside);
  EXPECT_EQ(step(config, every(1)).bytes, L * 4 * n * C + outside);
  EXPECT_EQ(step(config, every(2)).bytes, L / 2 * 4 * n * C + outside);
  EXPECT_EQ(step(config, every(3)).bytes, 2 * 4 * n * C + outside) << "three blocks, then one";
  // The core's input stays, and its output is the projection's input: what goes is log-sum-exp.
  EXPECT_EQ(step(config, recomputed_core(gpt2_parts())).bytes, L * (block - 4 * H * n) + outside);
}

// Where scores are stored, they are what it is worth to recompute: H n T numbers, twice.
TEST(Recomputed, FreesTheScoresOfACoreThatStoresThem) {
  GptConfig config = odd_config(DType::F32);
  GptParts stored = gpt2_parts();
  stored.core = [](const GptParts::Wanted& w) {
    return std::make_unique<StoredCore>(w.rank, w.name, w.config.heads, true);
  };
  const std::int64_t n = 2 * config.context, scores = config.heads * n * config.context;
  const Step plain = step(config, stored), again = step(config, recomputed_core(stored));
  EXPECT_EQ(plain.bytes - again.bytes, config.layers * 4 * scores);
  EXPECT_EQ(again.gradients, plain.gradients);
}

TEST(Recomputed, LowersThePeakOfAStep) {
  const auto peak = [](const GptParts& parts) {
    TestWorld world;
    GptConfig config = odd_config(DType::F32);
    config.layers = 12;
    TestGpt gpt(world, config, 1, DType::F32, parts);
    const Tensor tokens = random_tokens(world.device, 4, config.context, 13, 2);
    world.device.reset_peaks();
    forward_backward(gpt.model, tokens, tokens, {}, 1.0);
    return world.device.ledger()[Purpose::Activations].peak_bytes;
  };
  EXPECT_LT(peak(every(1)), peak(gpt2_parts()) / 3);
}

// Every layer's Saved against the ledger: what is live beside the output, once the input is let go.
TEST(SavedBytes, AreTheLedgersForEveryLayer) {
  TestWorld world;
  const GptConfig config = odd_config(DType::F32, 0.2);
  for (const GptParts& parts : {gpt2_parts(), every(1), recomputed_core(gpt2_parts())}) {
    TestGpt gpt(world, config, 1, DType::F32, parts);
    const auto live = [&] { return world.device.ledger()[Purpose::Activations].live_bytes; };
    const std::int64_t before = live();
    Tensor x = random_tokens(world.device, 2, config.context, 13, 2);
    for (const auto& layer : gpt.model.layers) {
      x = x.clone();  // so that no layer before holds it
      Saved saved;
      x = layer->forward(std::move(x), saved, {});
      std::int64_t output = static_cast<std::int64_t>(x.bytes());
      for (const Tensor& tensor : saved.tensors())
        if (tensor.view().raw() == x.view().raw()) output = 0;
      EXPECT_EQ(saved.bytes() + output, live() - before) << layer->name();
    }
  }
}

// ---- what a pass brings along -------------------------------------------------------------------

// y = x + side.value: an encoder's output, read by several layers.
class AddSide final : public Layer {
 public:
  explicit AddSide(const Rank& rank) : Layer(rank, "side") {}
  Tensor forward(Tensor x, Saved&, const Pass& pass) const override {
    Tensor y = x.clone();
    ops::add(y, y, pass.side->value);
    return y;
  }
  Tensor backward(Tensor dy, Saved&, const Pass& pass) override {
    Tensor& grad = pass.side->grad;
    if (grad)
      ops::add(grad, grad, dy);
    else
      grad = dy.clone();
    return dy;
  }
};

// The identity, whose extra loss is half the sum of the squares.
class Penalty final : public Layer {
 public:
  explicit Penalty(const Rank& rank) : Layer(rank, "penalty") {}
  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override {
    if (!pass.recompute) pass.extra->sum += dot(x, x) / 2;
    saved.push(x.share());
    return x;
  }
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override {
    const Tensor x = saved.pop();
    Tensor dx = x.clone();
    ops::scale(dx, dx, pass.extra->factor);
    ops::add(dx, dx, dy);
    return dx;
  }
};

TEST(PassBrings, ASideInputWhoseGradientIsSummed) {
  TestWorld world;
  const auto layer = in_sequence(world.rank, "both", std::make_unique<AddSide>(world.rank),
                                 std::make_unique<AddSide>(world.rank));
  const Tensor x = random_tensor({1, 2, 3}, DType::F64, world.device, "x");
  SideInput side{.value = random_tensor({1, 2, 3}, DType::F64, world.device, "side")};
  const Tensor weights = random_tensor({1, 2, 3}, DType::F64, world.device, "weights");
  const auto loss = [&] {
    Saved nothing = Saved::nothing();
    return dot(layer->forward(x.share(), nothing, {.side = &side}), weights);
  };
  Saved saved;
  layer->forward(x.share(), saved, {.side = &side});
  layer->backward(weights.share(), saved, {.side = &side});
  EXPECT_TRUE(check_gradient(loss, side.value, side.grad));
}

TEST(PassBrings, AnExtraLossThatIsCountedOnceAndHasAGradient) {
  TestWorld world;
  Recomputed layer(world.rank, std::make_unique<Penalty>(world.rank));
  const Tensor x = random_tensor({1, 2, 3}, DType::F64, world.device, "x");
  const Tensor weights = random_tensor({1, 2, 3}, DType::F64, world.device, "weights");
  const auto loss = [&] {
    Saved nothing = Saved::nothing();
    ExtraLoss extra{.factor = 0.3};
    const double own = dot(layer.forward(x.share(), nothing, {.extra = &extra}), weights);
    return own + extra.factor * extra.sum;
  };
  ExtraLoss extra{.factor = 0.3};
  Saved saved;
  layer.forward(x.share(), saved, {.extra = &extra});
  const Tensor dx = layer.backward(weights.share(), saved, {.extra = &extra});
  EXPECT_DOUBLE_EQ(extra.sum, dot(x, x) / 2) << "the second forward counts nothing";
  EXPECT_TRUE(check_gradient(loss, x, dx));
}

// The other core computes the same attention, so that it is an oracle for the fused one.
TEST(PassBrings, KeyLengthsAndTheFusedCoreAgreesWithOneThatStoresScores) {
  TestWorld world;
  const StoredCore stored(world.rank, "stored", 3, true);
  const CausalCore fused(world.rank, "fused", 3);
  const Tensor qkv = random_tensor({2, 5, 18}, DType::F64, world.device, "qkv");
  const Tensor lengths = ids_tensor({5, 3}, world.device);
  Saved nothing = Saved::nothing();
  const auto rows = [&](const Layer& core, const Pass& pass, std::int64_t b, std::int64_t T) {
    const Tensor y = core.forward(qkv.share(), nothing, pass);
    return to_doubles(y.view().flat(b * 5 * 6, T * 6));
  };
  for (const std::int64_t b : {0, 1}) {
    const std::int64_t T = b == 0 ? 5 : 3;  // the tokens before the padding
    const std::vector<double> expected = rows(fused, {}, b, T);
    for (const Pass& pass : {Pass{}, Pass{.key_lengths = lengths}}) {
      const std::vector<double> found = rows(stored, pass, b, T);
      for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-13);
    }
  }
  // Without the mask of causality, a token sees the ones behind it, but none that is padding.
  const StoredCore both_ways(world.rank, "both ways", 3, false);
  const Pass padded{.key_lengths = lengths};
  const std::vector<double> before = rows(both_ways, padded, 1, 3);
  write_doubles(qkv.view().flat((5 + 4) * 18, 18), std::vector<double>(18, 9.0));
  EXPECT_EQ(rows(both_ways, padded, 1, 3), before);
  EXPECT_NE(rows(both_ways, {}, 1, 3), before);
}

// The two runs of a zigzag, of an early and a late part of the sequence.
TEST(PassBrings, TwoRunsOfTokensWithTheirPositionsAndMasks) {
  TestWorld world;
  const auto layers =
      in_sequence(world.rank, "both", std::make_unique<Positions>(world.rank, 12, 3),
                  std::make_unique<Dropout>(world.rank, "dropout", 0.4, 1));
  ParameterStore store(world.device, layers->units(), {.value_dtype = DType::F64});
  store.initialize(1);
  const auto run = [&](std::int64_t T, const ops::TokenRuns& tokens) {
    Saved nothing = Saved::nothing();
    return to_doubles(layers->forward(Tensor::zeros({2, T, 3}, DType::F64, world.device), nothing,
                                      {.tokens = tokens}));
  };
  const std::vector<double> whole = run(12, {});
  const std::vector<double> zigzag = run(6, {.first = 3, .split = 3, .second = 9});
  for (std::size_t b = 0; b < 2; ++b)
    for (std::size_t t = 0; t < 6; ++t)
      for (std::size_t c = 0; c < 3; ++c)
        EXPECT_EQ(zigzag[(b * 6 + t) * 3 + c], whole[(b * 12 + (t < 3 ? 3 + t : 6 + t)) * 3 + c]);
  EXPECT_TRUE(error_says([&] { run(6, {.first = 3, .split = 3, .second = 10}); },
                         {"positions", "a token at 12 of 12"}));
}

}  // namespace
}  // namespace aisc
