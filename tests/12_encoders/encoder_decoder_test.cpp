// The transformer of encoder and decoder as a whole: its parameters, its gradients by central
// differences, padding on both sides that makes no difference, and what the decoder may see.
#include "12_encoders/encoder_decoder.h"

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "common/train/step_parts.h"
#include "tests/12_encoders/some_translations.h"
#include "tests/support/compare.h"
#include "tests/support/error_says.h"
#include "tests/support/gradient_check.h"

namespace aisc {
namespace {

// Gradients of all parameters, with the loss; every batch is of training.
double train_once(TestGpt& gpt, const Batch& batch) {
  gpt.store.clear_grads();
  const MicroBatch micro = micro_batch_of(batch.share(), {.terms = batch.terms});
  return forward_backward(gpt.model, micro.batch.tokens, micro.batch.targets, micro.pass,
                          1 / batch.terms);
}

SomeTranslations some_samples() { return {11, kSomeDecoderTokens, 13}; }

TEST(EncoderDecoder, HasTheParametersOfThePaper) {
  TestWorld world;
  TestGpt gpt(world, odd_translator(), 1, DType::F64, some_encoder_decoder());
  std::map<std::string, std::int64_t> counts;
  for (const Parameter* p : gpt.store.parameters()) counts[p->name] = p->shape.count();
  constexpr std::int64_t V = 16, C = 6;
  std::map<std::string, std::int64_t> expected{
      {"wte.weight", V * C}, {"decoder.wte.weight", V * C}, {"norm.weight", C}, {"norm.bias", C}};
  const auto linear = [&](const std::string& name, std::int64_t in, std::int64_t out) {
    expected[name + ".weight"] = in * out;
    expected[name + ".bias"] = out;
  };
  for (int b = 0; b < 4; ++b) {
    const std::string block = "blocks." + std::to_string(b);
    linear(block + ".attention.qkv", C, 3 * C);
    linear(block + ".attention.project", C, C);
    linear(block + ".mlp.fc", C, 4 * C);
    linear(block + ".mlp.project", 4 * C, C);
    const int norms = b < 2 ? 2 : b == 2 ? 3 : 2;  // the last one's is the layer before the head
    for (int n = 1; n <= norms; ++n) linear(block + ".norm" + std::to_string(n), 1, C);
    if (b < 2) continue;
    linear(block + ".cross.q", C, C);
    linear(block + ".cross.kv", C, 2 * C);
    linear(block + ".cross.project", C, C);
  }
  EXPECT_EQ(counts, expected);
}

TEST(EncoderDecoder, HasTheGradientsOfItsLoss) {
  TestWorld world;
  for (const double smoothing : {0.0, 0.1}) {
    TestGpt gpt(world, odd_translator(), 1, DType::F64, some_encoder_decoder(smoothing));
    const Batch batch = some_samples().batch(world.device, 2, 3);
    train_once(gpt, batch);
    const MicroBatch micro = micro_batch_of(batch.share(), {.terms = batch.terms});
    const auto loss = [&] {
      Saved nothing = Saved::nothing();
      return gpt.model.loss->forward(forward(gpt.model, micro.batch.tokens, {}, micro.pass),
                                     micro.batch.targets, nothing, micro.pass) /
             batch.terms;
    };
    for (const Parameter* p : gpt.store.parameters())
      EXPECT_TRUE(check_gradient(loss, p->value(), p->grad(), {.tolerance = 1e-6, .samples = 12}))
          << p->name;
  }
}

// By the formula, from the scores: a tenth of the aim is spread over all 13 words, the right one
// among them. Of 16 columns three are padding.
TEST(EncoderDecoder, AimsAtAllWordsALittle) {
  TestWorld world;
  TestGpt gpt(world, odd_translator(), 1, DType::F64, some_encoder_decoder(0.1));
  const Batch batch = some_samples().batch(world.device, 2, 3);
  const MicroBatch micro = micro_batch_of(batch.share(), {.terms = batch.terms});
  const Tensor scores = forward(gpt.model, micro.batch.tokens, {}, micro.pass);
  const std::vector<double> all = to_doubles(scores);
  double expected = 0;
  for (std::int64_t row = 0; row < batch.targets.count(); ++row) {
    const std::int32_t target = batch.targets.values<std::int32_t>()[std::size_t(row)];
    if (target < 0) continue;
    double sum = 0, mean = 0;
    for (std::int64_t c = 0; c < 13; ++c) {
      sum += std::exp(all[std::size_t(row * 16 + c)]);
      mean += all[std::size_t(row * 16 + c)] / 13;
    }
    expected += std::log(sum) - 0.9 * all[std::size_t(row * 16 + target)] - 0.1 * mean;
  }
  Saved nothing = Saved::nothing();
  const double found =
      gpt.model.loss->forward(scores.share(), micro.batch.targets, nothing, micro.pass);
  EXPECT_NEAR(found, expected, 1e-12 * expected)
      << "a smoothing of .1 over 13 words: .9 + .1/13 for the right one, .1/13 for each other one";
}

// Each sample alone, without any padding, in batches of their own: together they are the batch.
TEST(EncoderDecoder, IsTheSumOfItsSamplesWithoutPadding) {
  TestWorld world;
  TestGpt gpt(world, odd_translator(), 1, DType::F64, some_encoder_decoder());
  const SomeTranslations source = some_samples();
  const Batch batch = source.batch(world.device, 2, 5);
  const double found = train_once(gpt, batch);
  const std::vector<double> grads = to_doubles(gpt.store.grads());
  double sum = 0;
  std::vector<double> sums(grads.size());
  for (std::int64_t i = 2; i < 7; ++i) {
    const std::vector<std::vector<std::int32_t>> one{source.source(i)}, its{source.translation(i)};
    const Batch alone = pad_pairs(world.device, one, its, SomeTranslations::ids(),
                                  std::ssize(one[0]), std::ssize(its[0]) + 1);
    sum += train_once(gpt, alone);
    const std::vector<double> more = to_doubles(gpt.store.grads());
    for (std::size_t g = 0; g < sums.size(); ++g) sums[g] += more[g] * alone.terms / batch.terms;
  }
  EXPECT_NEAR(found, sum, 1e-12 * sum);
  for (std::size_t g = 0; g < sums.size(); ++g) ASSERT_NEAR(grads[g], sums[g], 1e-13) << g;
}

// Other tokens in the padding of sources and of translations: loss and gradients have the same
// bits, those of the tables' rows, too.
TEST(EncoderDecoder, SeesNoPadding) {
  TestWorld world;
  for (const DType dtype : {DType::F64, DType::F32}) {
    TestGpt gpt(world, odd_translator(dtype, 0.1), 1, dtype, some_encoder_decoder());
    const Batch batch = some_samples().batch(world.device, 2, 5);
    const double loss = train_once(gpt, batch);
    const Tensor grads = from_doubles(to_doubles(gpt.store.grads()), {gpt.store.grads().count()},
                                      dtype, world.device);
    const Batch other = batch.copy_to(world.device);
    int changed = 0;
    const auto lengths = batch.lengths.values<std::int32_t>();
    for (std::int64_t i = 0; i < other.tokens.count(); ++i)
      if (i % 11 >= lengths[std::size_t(i / 11)]) {
        other.tokens.data<std::int32_t>()[i] = static_cast<std::int32_t>(3 + i % 10);
        ++changed;
      }
    for (std::int64_t i = 0; i < other.decoder.count(); ++i)
      if (batch.targets.values<std::int32_t>()[std::size_t(i)] < 0) {
        other.decoder.data<std::int32_t>()[i] = static_cast<std::int32_t>(3 + i % 10);
        ++changed;
      }
    ASSERT_GT(changed, 20) << "the batch has padding";
    EXPECT_EQ(train_once(gpt, other), loss);
    const Tensor found = from_doubles(to_doubles(gpt.store.grads()), {gpt.store.grads().count()},
                                      dtype, world.device);
    EXPECT_TRUE(same_bits(found, grads));
  }
}

// A later token of the translation changes no earlier one's scores; any of the source changes all.
TEST(EncoderDecoder, SeesTheWholeSourceAndNoLaterTokenOfTheTranslation) {
  TestWorld world;
  TestGpt gpt(world, odd_translator(), 1, DType::F64, some_encoder_decoder());
  const Batch batch = some_samples().batch(world.device, 3, 1);  // a source of 11 tokens
  ASSERT_EQ(batch.lengths.values<std::int32_t>()[0], 11);
  const auto scores = [&](const Batch& of) {
    const MicroBatch micro = micro_batch_of(of.share(), {.training = false});
    return to_doubles(forward(gpt.model, micro.batch.tokens, {}, micro.pass));
  };
  const std::vector<double> before = scores(batch);
  const auto change = [](std::int32_t& token) { token = 3 + (token - 2) % 10; };
  constexpr std::int64_t kChanged = 4, kRow = 16;
  const Batch later = batch.copy_to(world.device);
  change(later.decoder.data<std::int32_t>()[kChanged]);
  const std::vector<double> of_later = scores(later);
  for (std::int64_t i = 0; i < kChanged * kRow; ++i)
    ASSERT_EQ(of_later[std::size_t(i)], before[std::size_t(i)]) << "score " << i;
  EXPECT_NE(of_later[kChanged * kRow], before[kChanged * kRow]);
  for (const std::int64_t place : {0, 5, 10}) {
    const Batch other = batch.copy_to(world.device);
    change(other.tokens.data<std::int32_t>()[place]);
    const std::vector<double> of_other = scores(other);
    for (std::int64_t t = 0; t < kSomeDecoderTokens; ++t)
      EXPECT_NE(of_other[std::size_t(t * kRow)], before[std::size_t(t * kRow)])
          << "source token " << place << ", decoder token " << t;
  }
}

TEST(EncoderDecoder, SaysWhatItIsNot) {
  TestWorld world;
  EXPECT_TRUE(
      error_says([] { encoder_decoder({.decoder_tokens = 0}); }, {"0 tokens", "1 or more"}));
  EXPECT_TRUE(error_says([] { encoder_decoder({.decoder_tokens = 3, .smoothing = 1}); },
                         {"smoothing of 1", "smoothing < 1"}));
  GptConfig config = odd_translator();
  config.encoder_blocks = 4;
  EXPECT_TRUE(error_says([&] { make_gpt(world.rank, config, some_encoder_decoder()); },
                         {"4 of 4 blocks", "decoder blocks"}));
  GptParts shared = gpt2_parts();
  shared.token_parts = 2;
  EXPECT_TRUE(error_says([&] { encoder_decoder_parts({.decoder_tokens = 3}, shared, nullptr); },
                         {"2 tensor and 1 context ranks", "expected 1"}));
  TestGpt gpt(world, odd_translator(), 1, DType::F64, some_encoder_decoder());
  const Tensor tokens = random_tokens(world.device, 1, 3, 13, 1);
  EXPECT_TRUE(error_says([&] { forward(gpt.model, tokens); }, {"without decoder tokens"}));
}

}  // namespace
}  // namespace aisc
