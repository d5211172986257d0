// Layers on operands of 8 bits: against loops over rounded numbers, and in models that train.
#include "10_model_compression/more/f8_training.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "08_moe/expert_parallel.h"
#include "common/nn/sequence.h"
#include "tests/10_model_compression/f8_by_loops.h"
#include "tests/support/message_of.h"
#include "tests/support/serial_run.h"

namespace aisc {
namespace {

using f8::by_loops;
using testing::HasSubstr;
using Doubles = std::vector<double>;

constexpr F8Scale kScales[] = {F8Scale::Tensor, F8Scale::Delayed, F8Scale::Block};
const char* word_of(F8Scale scale) {
  return scale == F8Scale::Tensor ? "tensor" : scale == F8Scale::Delayed ? "delayed" : "block";
}
bool is_f8_weight(const Parameter& p) { return p.name.ends_with(".weight"); }

// Layers with weights and gradients.
struct TestLayers {
  explicit TestLayers(std::vector<std::unique_ptr<Layer>> layers, DType dtype = DType::F64) {
    model.layers = std::move(layers);
    store = std::make_unique<ParameterStore>(
        world().device, make_units(model),
        ParameterStore::Options{.value_dtype = dtype, .grad_dtype = dtype});
    for (const Parameter* p : store->parameters())
      world().device.copy(p->value(), random_tensor(p->shape, dtype, world().device, p->name, 0.3));
  }
  static TestWorld& world() {
    static TestWorld shared;
    return shared;
  }
  Tensor forward(Tensor x, const Pass& pass = {}) {
    saved.resize(model.layers.size());
    return forward_layers(model, std::move(x), saved, pass);
  }
  Tensor backward(Tensor dy, const Pass& pass = {}) {
    return backward_layers(model, std::move(dy), saved, pass);
  }
  Parameter& operator[](std::size_t i) { return *store->parameters()[i]; }

  Model model;
  std::unique_ptr<ParameterStore> store;
  std::vector<Saved> saved;
};

std::unique_ptr<Layer> plain_linear(const std::string& name, std::int64_t in, std::int64_t out,
                                    Linear::Gelu gelu = Linear::Gelu::None) {
  return std::make_unique<Linear>(TestLayers::world().rank, name, in, out, 0.02, gelu);
}
std::unique_ptr<Layer> in_f8(std::unique_ptr<Layer> inner, F8Scale scale,
                             std::int64_t history = 1024) {
  return std::make_unique<F8Layer>(TestLayers::world().rank, std::move(inner),
                                   F8Options{.scale = scale, .history = history},
                                   F8Layer::Operands{.weights = is_f8_weight});
}
Tensor some_tensor(const Shape& shape, const char* name, double scale = 1,
                   DType dtype = DType::F64) {
  return random_tensor(shape, dtype, TestLayers::world().device, name, scale);
}
void expect_near_f8(const Doubles& found, const Doubles& expected, const char* what) {
  ASSERT_EQ(found.size(), expected.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], expected[i], 1e-12 * std::max(1.0, std::abs(expected[i])))
        << what << '[' << i << ']';
}

TEST(F8Layer, IsALinearLayerOfRoundedOperands) {
  constexpr std::size_t N = 6, I = 130, O = 133;
  for (const F8Scale scale : kScales) {
    SCOPED_TRACE(word_of(scale));
    TestLayers layers(listed(in_f8(plain_linear("one", I, O), scale)));
    const Tensor x = some_tensor({2, 3, I}, "x"), dy = some_tensor({2, 3, O}, "dy", 1e-6);
    const bool blocks = scale == F8Scale::Block;
    const auto of = [&](ConstView t, const NumberFormat& format, const ScaleBlocks& its) {
      return by_loops(to_doubles(t), t.shape()[-1], format, blocks ? its : kWholeTensor).numbers;
    };
    const Doubles xr = of(x, kE4M3, kRowBlocks), wr = of(layers[0].value(), kE4M3, kSquareBlocks),
                  dyr = of(dy, kE5M2, kRowBlocks), b = to_doubles(layers[1].value());
    Doubles y(N * O), dx(N * I), dw(O * I), db(O);
    for (std::size_t n = 0; n < N; ++n)
      for (std::size_t o = 0; o < O; ++o) {
        y[n * O + o] = b[o];
        db[o] += dyr[n * O + o];
        for (std::size_t i = 0; i < I; ++i) {
          y[n * O + o] += xr[n * I + i] * wr[o * I + i];
          dx[n * I + i] += dyr[n * O + o] * wr[o * I + i];
          dw[o * I + i] += dyr[n * O + o] * xr[n * I + i];
        }
      }
    expect_near_f8(to_doubles(layers.forward(x.share())), y, "y");
    expect_near_f8(to_doubles(layers.backward(dy.share())), dx, "dx");
    expect_near_f8(to_doubles(layers[0].grad()), dw, "dW");
    expect_near_f8(to_doubles(layers[1].grad()), db, "db");
  }
}

// Each with a GELU in its products, whose numbers pass from one to the other on the stack.
TEST(F8Layer, OfAnMlpIsWhatItsTwoLayersAreOnRoundedNumbers) {
  const Rank& rank = TestLayers::world().rank;
  const auto fc_layer = [] { return plain_linear("fc", 6, 20, Linear::Gelu::Behind); };
  const auto project_layer = [] { return plain_linear("project", 20, 6, Linear::Gelu::Before); };
  TestLayers f8(listed(in_sequence(rank, "mlp", in_f8(fc_layer(), F8Scale::Block),
                                   in_f8(project_layer(), F8Scale::Block))));
  TestLayers plain(listed(fc_layer(), project_layer()));
  const auto round = [](ConstView x, const NumberFormat& format, const ScaleBlocks& blocks) {
    Tensor out(x.shape(), x.dtype(), x.device());
    round_to_f8(out, x, format, blocks);
    return out;
  };
  for (std::size_t i : {0, 2})
    plain[i].value().device().copy(plain[i].value(), round(plain[i].value(), kE4M3, kSquareBlocks));
  const Tensor x = some_tensor({5, 6}, "x"), dy = some_tensor({5, 6}, "dy");
  const Tensor y = f8.forward(x.share()), dx = f8.backward(dy.share());

  Saved saved;
  Layer &fc = *plain.model.layers[0], &project = *plain.model.layers[1];
  Tensor h = fc.forward(round(x, kE4M3, kRowBlocks), saved, {});
  EXPECT_TRUE(same_bits(project.forward(round(h, kE4M3, kRowBlocks), saved, {}), y));
  Tensor dh = project.backward(round(dy, kE5M2, kRowBlocks), saved, {});
  EXPECT_TRUE(same_bits(fc.backward(round(dh, kE5M2, kRowBlocks), saved, {}), dx));
  EXPECT_TRUE(same_bits(f8.store->grads(), plain.store->grads()));
}

TEST(F8Layer, LeavesWeightsAndWhatOthersHoldAsTheyAre) {
  for (const F8Scale scale : kScales) {
    TestLayers layers(listed(in_f8(plain_linear("one", 30, 20), scale)), DType::BF16);
    const Tensor x = some_tensor({4, 30}, "x", 1, DType::BF16),
                 dy = some_tensor({4, 20}, "dy", 1, DType::BF16);
    const Tensor old_x = x.clone(), old_dy = dy.clone();
    Tensor old({layers.store->values().count()}, DType::BF16, x.device());
    x.device().copy(old, layers.store->values());
    const void* bound = layers[0].value().raw();
    layers.forward(x.share());
    EXPECT_TRUE(same_bits(x, old_x)) << "others hold x, too: the trunk of a residual connection";
    layers.backward(dy.share());
    EXPECT_TRUE(same_bits(dy, old_dy));
    EXPECT_EQ(layers[0].value().raw(), bound);
    EXPECT_TRUE(same_bits(layers.store->values(), old)) << "the optimizer moves the long weights";
    EXPECT_THROW(layers.model.layers[0]->forward(some_tensor({4, 29}, "x", 1, DType::BF16),
                                                 layers.saved[0], {}),
                 Error);
    EXPECT_EQ(layers[0].value().raw(), bound) << "after an error, too";
  }
}

// With a weight of 1 the layer gives back what it made of x. Of a history of 2 steps:
TEST(F8Layer, DelayedScalesAreOfTheStepsBeforeByHand) {
  TestLayers layers(listed(in_f8(plain_linear("one", 1, 1), F8Scale::Delayed, 2)));
  write_doubles(layers[0].value(), {1});
  write_doubles(layers[1].value(), {0});
  const auto made_of = [&](double x, std::uint64_t step, bool training = true) {
    const Tensor y =
        layers.forward(from_doubles({x}, {1, 1}, DType::F64, TestLayers::world().device),
                       {.training = training, .step = step});
    return to_doubles(y)[0];
  };
  EXPECT_EQ(made_of(1, 0), 1) << "the first step takes the scale of its own numbers: 2^-8";
  EXPECT_EQ(made_of(100, 0), 96) << "so does each of its micro-batches: 2^-2, steps of 8 * 2^0 "
                                    "above 64, and 100 is a tie that goes to the even 96";
  EXPECT_EQ(made_of(1000, 1), 112) << "step 0 had 100: scale 2^-2, which ends at 448 / 4 = 112";
  EXPECT_EQ(made_of(0.0002, 1), 0) << "less than half of the smallest number, 2^-9 / 4 = 0.0005";
  EXPECT_EQ(made_of(1000, 2), 1024) << "steps 0 and 1 had 1000: scale 4, steps of 128 above 512";
  EXPECT_EQ(made_of(1, 3, false), 1) << "what does not train takes its own scale";
  EXPECT_EQ(made_of(0x1p-20, 5), 0x1p-20)
      << "nothing is known of steps 3 and 4, so that it begins anew";
}

GptConfig small_f8_config(DType dtype) {
  return {.layers = 2,
          .heads = 2,
          .width = 24,
          .context = 12,
          .vocabulary = 13,
          .vocabulary_multiple = 8,
          .dtype = dtype};
}

// Gradients of one step in two micro-batches of so many samples each; the loss behind them.
struct GptGradients {
  GptGradients(const GptParts& parts, const std::vector<std::int64_t>& counts, DType dtype,
               DeferredGrads* deferred = nullptr)
      : gpt(TestLayers::world(), small_f8_config(dtype), 1, dtype, parts) {
    TestWorld& world = TestLayers::world();
    const Tensor tokens = random_tokens(world.device, 4, 12, 13, 1),
                 targets = random_tokens(world.device, 4, 12, 13, 2);
    std::int64_t begin = 0;
    for (const std::int64_t count : counts) {
      Tensor some_tokens({count, 12}, DType::I32, world.device), some_targets = some_tokens.clone();
      world.device.copy(some_tokens, tokens.rows(begin, begin + count));
      world.device.copy(some_targets, targets.rows(begin, begin + count));
      loss += forward_backward(gpt.model, some_tokens, some_targets,
                               {.first_sample = begin, .deferred = deferred}, 1.0 / 48);
      begin += count;
    }
    if (deferred) deferred->run_all();
  }
  TestGpt gpt;
  double loss = 0;
};

TEST(F8Parts, RecomputedAndDeferredGradientsHaveTheSameBits) {
  for (const F8Scale scale : kScales) {
    const GptParts parts = f8_parts(gpt2_parts(), {.scale = scale, .layers = {true, true, true}});
    const GptGradients plain(parts, {4}, DType::BF16);
    for (const char* recompute : {"block", "mlp"}) {
      const GptGradients again(Recompute::parse(recompute).parts(parts), {4}, DType::BF16);
      EXPECT_TRUE(same_bits(plain.gpt.store.grads(), again.gpt.store.grads()))
          << word_of(scale) << ", " << recompute;
    }
    DeferredGrads later;
    const GptGradients deferred(parts, {4}, DType::BF16, &later);
    for (std::size_t i = 0; i < plain.gpt.store.parameters().size(); ++i) {
      const Parameter& p = *plain.gpt.store.parameters()[i];
      if (p.name == "wte.weight") continue;  // embedding and head add to it in another order
      EXPECT_TRUE(same_bits(p.grad(), deferred.gpt.store.parameters()[i]->grad()))
          << word_of(scale) << ", deferred: " << p.name;
    }
  }
}

// A row's scales are of the row alone.
TEST(F8Parts, OfBlocksMicroBatchesAddUpToTheBatch) {
  const auto gradients = [](const std::vector<std::int64_t>& counts) {
    const GptParts parts = f8_parts(gpt2_parts(), {.layers = {true, true, true}});
    return to_doubles(GptGradients(parts, counts, DType::F64).gpt.store.grads());
  };
  const Doubles whole = gradients({4});
  expect_near_f8(gradients({2, 2}), whole, "of two halves");
  expect_near_f8(gradients({1, 3}), whole, "of 1 and 3 samples");
}

// With one scale for a tensor a sample's numbers depend on those that it is computed with.
TEST(F8Layer, OfOneScaleASmallSampleIsLostBesideALargeOne) {
  const auto small_beside = [](double other, F8Scale scale) {
    TestLayers layers(listed(in_f8(plain_linear("one", 1, 1), scale)));
    write_doubles(layers[0].value(), {1});
    write_doubles(layers[1].value(), {0});
    const Tensor x = from_doubles({other, 0.001}, {2, 1}, DType::F64, TestLayers::world().device);
    return to_doubles(layers.forward(x.share()))[1];
  };
  EXPECT_EQ(small_beside(0.001, F8Scale::Tensor), 0x1p-10);
  EXPECT_EQ(small_beside(1000, F8Scale::Tensor), 0);
  EXPECT_EQ(small_beside(1000, F8Scale::Block), 0x1p-10);
}

// How often a forward of a small model rounds, by what is in 8 bits.
TEST(F8Parts, RoundsTheOperandsOfTheLayersThatAreAskedFor) {
  GptConfig config = small_f8_config(DType::F64);
  config.experts = {.count = 3};
  TestWorld world;
  const auto rounds = [&](const F8Layers& layers) {
    const GptParts parts = f8_parts(expert_parts(gpt2_parts(), nullptr), {.layers = layers});
    const Model model = make_gpt(world.rank, config, parts);
    std::vector<std::unique_ptr<ParameterStore>> stores;
    for (const Sync sync : {Sync::Data, Sync::ExpertData}) {
      stores.push_back(std::make_unique<ParameterStore>(
          world.device, make_units(model, sync),
          ParameterStore::Options{.value_dtype = DType::F64, .grad_dtype = DType::F64}));
      stores.back()->initialize(1);
    }
    std::map<std::string, int> calls;
    world.device.listen([&](const OpCost& cost) { ++calls[cost.operation]; });
    forward(model, random_tokens(world.device, 2, 12, 13, 1));
    world.device.listen({});
    return calls["round to F8"];
  };
  // Two of attention's in each block and the first block's MLP: x and weight; of the second x, and
  // two weights of 3 experts.
  EXPECT_EQ(rounds({}), 6 * 2 + 1 + 2 * 3);
  EXPECT_EQ(rounds({.linears = false, .head = true}), 2) << "x and the table";
  EXPECT_EQ(rounds({.linears = false, .norms = true}), 5 * 3) << "x, weight and bias";
  EXPECT_EQ(rounds({.linears = false, .router = true}), 2) << "x and the router's weight";
  EXPECT_EQ(rounds({.router = true}), 6 * 2 + 1 + 2 * 3 + 1) << "the same x";
  EXPECT_EQ(rounds({.linears = false}), 0);
}

// Nats between the losses of training with linear layers in F8 and in BF16, in a task that is
// learnt from 2.6 to 1 nat within 20 steps. Two roundings of the same run are a few hundredths
// apart.
constexpr double kF8Distance = 0.1;

TEST(F8Training, LossesStayNearThoseOfBf16) {
  TrainConfig config;
  config.model = small_f8_config(DType::BF16);
  config.batch = 16;
  config.micro_batches = 2;
  config.steps = 20;
  config.warmup_steps = 3;
  config.learning_rate = 1e-2;
  const Doubles bf16 = run_layout({}, config, 20).back().losses;
  EXPECT_LT(bf16.back(), bf16.front() - 1) << "it learns";
  for (const F8Scale scale : kScales) {
    const Doubles f8 = run_layout({}, config, 20, f8_training({.scale = scale})).back().losses;
    EXPECT_NE(f8, bf16);
    for (std::size_t i = 0; i < f8.size(); ++i)
      ASSERT_NEAR(f8[i], bf16[i], kF8Distance) << word_of(scale) << ", step " << i;
  }
}

TEST(F8Training, OnRanksThatShareTheBatchIsTheSerialRun) {
  const StepParts parts = f8_training({.layers = {.head = true, .norms = true}});
  const TrainConfig config = odd_training();
  const auto serial = run_layout({.ranks = 1}, config, 2, parts);
  for (const int ranks : {2, 3})
    EXPECT_TRUE(same_steps(serial, run_layout({.ranks = ranks}, config, 2, parts))) << ranks;
}

TEST(F8Training, OfExpertsOnRanksIsTheSerialRun) {
  TrainConfig config = odd_training();
  config.model.experts = {.count = 4};
  const StepParts parts = f8_training({.layers = {.router = true}}, expert_parallel());
  const auto serial = run_layout({.ranks = 1}, config, 2, parts);
  config.ep = 2;
  EXPECT_TRUE(same_steps(serial, run_layout({.ranks = 2}, config, 2, parts)));
}

TEST(F8Training, RunsOnADeviceWithoutNumbers) {
  const Machine machine = find_machine("dgx-a100");
  launch(on_machine(machine, 1, {.meta = true}), [](const Rank& rank) {
    for (const F8Scale scale : kScales) {
      const GptConfig config = small_f8_config(DType::BF16);
      const Model model = make_gpt(rank, config, f8_parts(gpt2_parts(), {.scale = scale}));
      ParameterStore store(rank.device, make_units(model), {.value_dtype = DType::BF16});
      const Tensor tokens({2, 12}, DType::I32, rank.device);
      const double before = rank.clock.now();
      forward_backward(model, tokens, tokens, {}, 1);
      EXPECT_GT(rank.clock.now(), before);
    }
  });
}

TEST(F8Words, AreScalesAndLayers) {
  for (const F8Scale scale : kScales) EXPECT_EQ(parse_f8_scale(word_of(scale)), scale);
  EXPECT_EQ(message_of([] { (void)parse_f8_scale("mx"); }),
            "f8: scale 'mx': expected tensor, delayed or block");
  EXPECT_EQ(parse_f8_layers("linears"), F8Layers{});
  EXPECT_EQ(parse_f8_layers("router,head"),
            (F8Layers{.linears = false, .head = true, .router = true}));
  EXPECT_EQ(parse_f8_layers("linears,head,norms,router"), (F8Layers{true, true, true, true}));
  for (const char* text : {"", "linears,", "linears,embedding"})
    EXPECT_THAT(message_of([&] { (void)parse_f8_layers(text); }),
                HasSubstr("expected some of linears, head, norms and router"));
}

}  // namespace
}  // namespace aisc
