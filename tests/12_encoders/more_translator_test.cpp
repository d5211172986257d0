// Writing with a model: its log-probabilities are the model's, of many sources and of one, greedily
// and by a beam.
#include "12_encoders/more/translator.h"

#include <vector>

#include "common/train/recompute.h"
#include "tests/12_encoders/some_translations.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

class TranslatorTest : public ::testing::Test {
 protected:
  static constexpr std::int64_t kMost = 6;

  // Weights far from 0, so that texts depend on their sources, and end here and there.
  TranslatorTest() {
    const Tensor more = random_tensor(gpt.store.values().shape(), DType::F64, world.device, "more");
    ops::add(gpt.store.values(), gpt.store.values(), more);
  }

  Translator translator() {
    return {world.rank,
            gpt.model,
            gpt.config,
            {.ids = SomeTranslations::ids(), .source_tokens = 11, .most = kMost}};
  }
  std::vector<std::vector<std::int32_t>> sources(std::int64_t count) {
    std::vector<std::vector<std::int32_t>> all;
    for (std::int64_t i = 0; i < count; ++i) all.push_back(samples.source(i));
    return all;
  }

  TestWorld world;
  TestGpt gpt{world, odd_translator(), 3, DType::F64, some_encoder_decoder()};
  SomeTranslations samples{11, kSomeDecoderTokens, 13};
};

// The loss of the text that was found, with its end, is minus its log-probability.
TEST_F(TranslatorTest, SaysHowProbableTheModelFindsAText) {
  for (const std::vector<std::int32_t>& source : sources(6))
    for (const Hypothesis& h : translator().translate(source, 3)) {
      const Batch batch = pad_pairs(world.device, {&source, 1}, {&h.tokens, 1},
                                    SomeTranslations::ids(), 11, std::ssize(h.tokens) + 2);
      const MicroBatch micro = micro_batch_of(batch.share(), {.training = false});
      const double loss =
          evaluate(gpt.model, micro.batch.tokens, micro.batch.targets, {}, micro.pass);
      EXPECT_NEAR(h.log_probability, -loss, 1e-10);
      EXPECT_NEAR(h.score, -loss / length_penalty(std::ssize(h.tokens) + 1, 0.6), 1e-10);
      EXPECT_LT(std::ssize(h.tokens), kMost);
    }
}

TEST_F(TranslatorTest, IsGreedyWithABeamOfOne) {
  const auto all = sources(12);
  const auto found = translator().translate_greedily(all);
  ASSERT_EQ(found.size(), all.size());
  std::size_t shortest = kMost, longest = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(found[i], translator().translate(all[i], 1).front().tokens) << "source " << i;
    EXPECT_EQ(found[i], translator().translate_greedily({&all[i], 1}).front())
        << "source " << i << ": others beside it make a difference";
    shortest = std::min(shortest, found[i].size());
    longest = std::max(longest, found[i].size());
  }
  EXPECT_LT(shortest, longest) << "all are equally long: what ends is not tested";
}

TEST_F(TranslatorTest, FindsBetterTextsWithAWiderBeam) {
  int better = 0;
  for (const std::vector<std::int32_t>& source : sources(12)) {
    const double greedy = translator().translate(source, 1).front().score;
    const double wide = translator().translate(source, 40).front().score;
    EXPECT_GE(wide, greedy - 1e-12);
    better += wide > greedy + 1e-9 ? 1 : 0;
  }
  EXPECT_GT(better, 0);
}

TEST_F(TranslatorTest, SaysWhatItCannotReadOrUse) {
  EXPECT_TRUE(error_says([&] { translator().translate({}, 1); }, {"source", "found 0"}));
  EXPECT_TRUE(error_says([&] { translator().translate(std::vector<std::int32_t>(12, 3), 1); },
                         {"found 12", "1 to 11"}));
  const GptParts grouped = Recompute::parse("every:2").parts(some_encoder_decoder());
  const Model model = make_gpt(world.rank, gpt.config, grouped);
  EXPECT_TRUE(error_says([&] { Translator(world.rank, model, gpt.config, {}); },
                         {"translator", "7 layers", "expected 9"}));
}

}  // namespace
}  // namespace aisc
