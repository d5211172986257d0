// The GPT as a whole: its gradients, its causality, its bookkeeping.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/nn/gpt_fixture.h"
#include "tests/support/error_says.h"
#include "tests/support/gradient_check.h"
#include "tests/support/ledger_checks.h"

namespace aisc {
namespace {

struct GradientCase {
  const char* name;
  double dropout;
  std::int64_t micro_batches;
};

class GptGradient : public ::testing::TestWithParam<GradientCase> {};

// The loss of a batch of four, in micro-batches, as a function of any parameter.
TEST_P(GptGradient, MatchesCentralDifferencesInEveryParameter) {
  const double dropout = GetParam().dropout;
  const std::int64_t micro_batches = GetParam().micro_batches;
  TestWorld world;
  const GptConfig config = odd_config(DType::F64, dropout);
  TestGpt gpt(world, config);
  const std::int64_t B = 4, T = config.context, part = B / micro_batches;
  const Tensor tokens = random_tokens(world.device, B, T, config.vocabulary, 2);
  const Tensor targets = random_tokens(world.device, B, T, config.vocabulary, 3);
  write_doubles(targets.view().flat(5, 1), {-1});  // a token without a target
  const double factor = 1.0 / static_cast<double>(B * T);

  const auto run = [&] {
    double loss = 0;
    gpt.store.clear_grads();
    for (std::int64_t m = 0; m < micro_batches; ++m) {
      const auto slice = [&](const Tensor& x) {
        Tensor copy({part, T}, DType::I32, world.device);
        world.device.copy(copy, x.rows(m * part, (m + 1) * part));
        return copy;
      };
      const Pass pass{.step = 7, .first_sample = m * part};
      loss += forward_backward(gpt.model, slice(tokens), slice(targets), pass, factor);
    }
    return loss * factor;
  };
  run();
  const Tensor analytic({gpt.store.layout().count()}, DType::F64, world.device);
  world.device.copy(analytic, gpt.store.grads());
  std::size_t unit = 0, slot = 0;
  for (const Parameter* p : gpt.store.parameters()) {
    const auto& units = gpt.store.layout().units();
    while (slot == units[unit].parameters.size()) ++unit, slot = 0;
    const Range range = units[unit].parameters[slot++];
    EXPECT_TRUE(check_gradient(run, p->value().reshaped({p->value().count()}),
                               analytic.view().flat(range.begin, range.count()),
                               {.step = 1e-5, .tolerance = 1e-7, .samples = 12}))
        << p->name;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GptGradient,
                         ::testing::Values(GradientCase{"plain", 0.0, 1},
                                           GradientCase{"dropout", 0.3, 1},
                                           GradientCase{"accumulation", 0.0, 2},
                                           GradientCase{"both", 0.3, 4}),
                         [](const auto& test) { return test.param.name; });

class GptOnDevices : public PerWorld {};
INSTANTIATE_TEST_SUITE_P(All, GptOnDevices, ::testing::ValuesIn(device_kinds()),
                         device_kind_test_name);

// Of which the CPU's are proved above.
TEST_P(GptOnDevices, LossAndGradientsAreThoseOfTheCpu) {
  const GptConfig config = odd_config(DType::F64, 0.3);
  const auto run = [&](DeviceKind kind) {
    TestWorld world(kind);
    TestGpt gpt(world, config);
    std::vector<double> result{0};
    for (const std::int64_t first : {0, 2}) {
      const Tensor tokens = random_tokens(world.device, 2, config.context, 13, 2);
      const Tensor targets = random_tokens(world.device, 2, config.context, 13, 3);
      write_doubles(targets.view().flat(5, 1), {-1});
      result[0] +=
          forward_backward(gpt.model, tokens, targets, {.step = 7, .first_sample = first}, 0.125);
    }
    const std::vector<double> grads = to_doubles(gpt.store.grads());
    result.insert(result.end(), grads.begin(), grads.end());
    return result;
  };
  const std::vector<double> found = run(GetParam()), expected = run(DeviceKind::Cpu);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-11) << i;
}

TEST_P(GptOnDevices, MicroBatchesGiveTheSameGradientAsOneBatch) {
  for (const double dropout : {0.0, 0.5}) {
    TestWorld world(GetParam());
    const GptConfig config = odd_config(DType::F64, dropout);
    std::vector<std::vector<double>> gradients;
    for (const std::int64_t part : {6, 2, 1}) {
      TestGpt gpt(world, config);
      const Tensor tokens = random_tokens(world.device, 6, config.context, 13, 2);
      const Tensor targets = random_tokens(world.device, 6, config.context, 13, 3);
      for (std::int64_t first = 0; first < 6; first += part) {
        Tensor x({part, config.context}, DType::I32, world.device);
        Tensor y({part, config.context}, DType::I32, world.device);
        world.device.copy(x, tokens.rows(first, first + part));
        world.device.copy(y, targets.rows(first, first + part));
        forward_backward(gpt.model, x, y, {.step = 3, .first_sample = first}, 0.25);
      }
      gradients.push_back(to_doubles(gpt.store.grads()));
    }
    for (std::size_t k = 1; k < gradients.size(); ++k)
      for (std::size_t i = 0; i < gradients[0].size(); ++i)
        ASSERT_NEAR(gradients[k][i], gradients[0][i], 1e-12) << "element " << i;
  }
}

TEST_P(GptOnDevices, LaterTokensDoNotChangeEarlierLogitsByOneBit) {
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16}) {
    TestWorld world(GetParam());
    GptConfig config = odd_config(dtype);
    config.context = 70;  // beyond one block of attention
    TestGpt gpt(world, config, 1, dtype);
    const Tensor tokens = random_tokens(world.device, 2, 70, config.vocabulary, 2);
    const Tensor before = forward(gpt.model, tokens);
    for (const std::int64_t t : {1, 33, 64, 69}) {
      const Tensor changed = tokens.clone();
      for (std::int64_t b = 0; b < 2; ++b) {
        const View token = changed.view().flat(b * 70 + t, 1);
        const auto id = static_cast<std::int64_t>(to_doubles(token)[0]);
        write_doubles(token, {static_cast<double>((id + 1) % config.vocabulary)});
      }
      const Tensor after = forward(gpt.model, changed);
      const std::int64_t row = after.count() / 140;
      for (std::int64_t b = 0; b < 2; ++b) {
        const auto tokens_from = [&](const Tensor& x, std::int64_t token, std::int64_t count) {
          return x.view().flat((b * 70 + token) * row, count * row);
        };
        EXPECT_TRUE(same_bits(tokens_from(before, 0, t), tokens_from(after, 0, t))) << t;
        EXPECT_FALSE(same_bits(tokens_from(before, t, 1), tokens_from(after, t, 1))) << t;
      }
    }
  }
}

TEST_P(GptOnDevices, UntrainedLossIsAboutTheLogarithmOfTheVocabulary) {
  TestWorld world(GetParam());
  const GptConfig config{.layers = 2, .heads = 2, .width = 32, .context = 32, .vocabulary = 256};
  const Model model = make_gpt(world.rank, config);
  ParameterStore store(world.device, make_units(model), {});
  store.initialize(1);
  const Tensor tokens = random_tokens(world.device, 4, 32, 256, 2);
  const Tensor targets = random_tokens(world.device, 4, 32, 256, 3);
  EXPECT_NEAR(evaluate(model, tokens, targets) / 128, std::log(256.0), 0.05);
}

TEST(Gpt, CountsItsParametersAsPublished) {
  TestWorld world;
  GptConfig config;  // GPT-2, 124M
  config.vocabulary_multiple = 1;
  const Model model = make_gpt(world.rank, config);
  std::int64_t count = 0;
  for (const Unit& unit : make_units(model))
    for (const Parameter* p : unit.parameters) count += p->shape.count();
  EXPECT_EQ(count, 124'439'808);
  EXPECT_EQ(make_units(model).size(), 15u);  // table, positions, 12 blocks, last norm
  EXPECT_EQ(make_units(model)[2].name, "blocks.0");
  EXPECT_EQ(make_units(model)[14].name, "norm");
}

TEST(Gpt, CountsFlopsByTheUsualConvention) {
  GptConfig config;
  EXPECT_EQ(config.table_rows(), 50304);
  // 6 N + 12 L C T, N = V C + 12 L C^2, computed by hand for T = 64.
  EXPECT_DOUBLE_EQ(config.flops_per_token(64),
                   6.0 * (50304.0 * 768 + 12.0 * 12 * 768 * 768) + 12.0 * 12 * 768 * 64);
}

// An MLP counts as many times as a token meets one, and the router beside it.
TEST(Gpt, CountsFlopsOfTheExpertsThatATokenMeets) {
  GptConfig config{.layers = 3, .heads = 1, .width = 8, .context = 4, .vocabulary = 16};
  const double dense = config.flops_per_token(4);
  config.experts = {.count = 6, .every = 1};
  const double mlp = 6.0 * 8 * 8 * 8, router = 6.0 * 6 * 8;
  EXPECT_EQ(config.flops_per_token(4), dense + 3 * router);
  config.experts.router = "top2";
  EXPECT_EQ(config.flops_per_token(4), dense + 3 * (mlp + router));
  config.experts.shared = true;
  config.experts.every = 2;
  EXPECT_EQ(config.flops_per_token(4), dense + 2 * mlp + router);
}

TEST(Gpt, HasExpertsInEveryFewBlocks) {
  GptConfig config;
  for (std::int64_t block = 0; block < 4; ++block) EXPECT_FALSE(config.has_experts(block));
  config.experts.count = 2;
  for (std::int64_t block = 0; block < 4; ++block)
    EXPECT_EQ(config.has_experts(block), block % 2 == 1) << block;
}

// What a part is asked for says in which block it is to be, if in any.
TEST(Gpt, TellsItsPartsTheBlock) {
  TestWorld world;
  GptConfig config = odd_config();
  config.layers = 3;
  GptParts parts = gpt2_parts();
  std::vector<std::int64_t> mlps, norms;
  parts.mlp = [&](const GptParts::Wanted& w) {
    mlps.push_back(w.block);
    return gpt2_parts().mlp(w);
  };
  parts.norm = [&](const GptParts::Wanted& w) {
    norms.push_back(w.block);
    return gpt2_parts().norm(w);
  };
  make_gpt(world.rank, config, parts, BlockRange{1, 3});
  EXPECT_EQ(mlps, (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(norms.back(), -1);
}

TEST(Gpt, NamesExpertsThatDoNotFit) {
  const auto says = [](const GptExperts& experts, const std::vector<std::string>& fragments) {
    GptConfig config = odd_config();
    config.experts = experts;
    EXPECT_TRUE(error_says([&] { config.validate(); }, fragments));
  };
  says({.count = -1}, {"experts are -1", "expected 0 or more"});
  says({.count = 2, .every = 0}, {"every 0 blocks", "expected 1 to 2"});
  says({.count = 2, .every = 3}, {"every 3 blocks", "expected 1 to 2"});
  says({.count = 1, .router = "top2"}, {"experts are 1", "expected 2 or more", "top2"});
  says({.count = 2, .capacity = -1}, {"experts' capacity is -1", "0 or more"});
  says({.count = 2, .balance = std::nan("")}, {"experts' balance is nan", "0 or more"});
  says({.count = 2, .z_loss = -0.5}, {"experts' z-loss is -0.5", "0 or more"});
}

TEST_P(GptOnDevices, LeavesNothingBehind) {
  TestWorld world(GetParam());
  const GptConfig config = odd_config();
  TestGpt gpt(world, config);
  const Tensor tokens = random_tokens(world.device, 2, config.context, 13, 2);
  const Tensor targets = random_tokens(world.device, 2, config.context, 13, 3);
  const NoLeak guard(world.device);
  forward_backward(gpt.model, tokens, targets, {}, 1.0);
  evaluate(gpt.model, tokens, targets);
}

// With T tokens the scores of one layer alone would be B H T^2 numbers. Activations at the peak
// must grow in proportion to T, not to its square.
TEST(Gpt, ActivationsGrowLinearlyWithTheLengthOfTheSequence) {
  const auto peak = [](std::int64_t T) {
    TestWorld world;
    const GptConfig config{.layers = 2,
                           .heads = 4,
                           .width = 16,
                           .context = T,
                           .vocabulary = 16,
                           .vocabulary_multiple = 1};
    const Model model = make_gpt(world.rank, config);
    ParameterStore store(world.device, make_units(model), {});
    store.initialize(1);
    const Tensor tokens = random_tokens(world.device, 1, T, 16, 2);
    const Tensor targets = random_tokens(world.device, 1, T, 16, 3);
    world.device.reset_peaks();
    forward_backward(model, tokens, targets, {}, 1.0);
    const Ledger ledger = world.device.ledger();
    return std::pair(ledger[Purpose::Activations].peak_bytes,
                     ledger[Purpose::Workspace].peak_bytes);
  };
  const auto [short_activations, short_workspace] = peak(256);
  const auto [long_activations, long_workspace] = peak(1024);
  EXPECT_EQ(long_activations, 4 * short_activations);
  EXPECT_LE(long_workspace, 4 * short_workspace + (64 << 10));
  EXPECT_LT(long_workspace, 4 * 1024 * 1024 * 4);  // far below one (H, T, T) tensor in F32
}

TEST(Gpt, NamesSizesThatDoNotFit) {
  TestWorld world;
  GptConfig config = odd_config();
  config.heads = 4;
  EXPECT_TRUE(
      error_says([&] { make_gpt(world.rank, config); }, {"width 15 is not a multiple of heads 4"}));
}

TEST_P(GptOnDevices, DeferredWeightGradientsEqualImmediateOnes) {
  TestWorld world(GetParam());
  const GptConfig config = odd_config();
  const Tensor tokens = random_tokens(world.device, 2, config.context, 13, 2);
  const Tensor targets = random_tokens(world.device, 2, config.context, 13, 3);
  TestGpt now(world, config), later(world, config);
  forward_backward(now.model, tokens, targets, {}, 1.0);
  DeferredGrads deferred;
  forward_backward(later.model, tokens, targets, {.deferred = &deferred}, 1.0);
  EXPECT_EQ(deferred.size(), 9u);  // four products a block, and the head
  deferred.run_all();
  const auto a = to_doubles(now.store.grads()), b = to_doubles(later.store.grads());
  for (std::size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-13) << i;
}

}  // namespace
}  // namespace aisc
