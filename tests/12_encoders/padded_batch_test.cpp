// What stands where when samples are not of one length.
#include "12_encoders/padded_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/drawn.h"
#include "tests/support/error_says.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

// [CLS] 10 [MASK] [SEP] 12 [SEP], and [CLS] 20 [SEP] [MASK] [MASK] 23 30 [SEP]: [CLS] is 2, [SEP]
// 3, [MASK] 4.
const std::vector<MaskedPair>& two_masked_pairs() {
  static const std::vector<MaskedPair> samples = {{.tokens = {2, 10, 4, 3, 12, 3},
                                                   .segments = {0, 0, 0, 0, 1, 1},
                                                   .places = {2},
                                                   .targets = {11},
                                                   .label = 0},
                                                  {.tokens = {2, 20, 3, 4, 4, 23, 30, 3},
                                                   .segments = {0, 0, 0, 1, 1, 1, 1, 1},
                                                   .places = {3, 4, 6},
                                                   .targets = {21, 22, 24},
                                                   .label = 1}};
  return samples;
}

std::vector<std::int32_t> padded_numbers(const Tensor& x) {
  const auto values = x.values<std::int32_t>();
  return {values.begin(), values.end()};
}

TEST(PaddedMaskedPairs, TokensEndInPadding) {
  CpuDevice device;
  const Batch batch = pad_masked_pairs(device, two_masked_pairs(), 9, 3, 7);
  EXPECT_EQ(batch.tokens.shape(), (Shape{2, 9}));
  EXPECT_THAT(padded_numbers(batch.tokens),
              ElementsAre(2, 10, 4, 3, 12, 3, 7, 7, 7, 2, 20, 3, 4, 4, 23, 30, 3, 7))
      << "samples of 6 and 8 tokens in rows of 9; [PAD] is token 7 here";
  EXPECT_THAT(padded_numbers(batch.lengths), ElementsAre(6, 8))
      << "tokens of each sample: keys from there on are padding, and nobody looks at them";
}

TEST(PaddedMaskedPairs, PaddingIsOfTheFirstSegment) {
  CpuDevice device;
  const Batch batch = pad_masked_pairs(device, two_masked_pairs(), 9, 3, 7);
  EXPECT_EQ(batch.segments.shape(), (Shape{2, 9}));
  EXPECT_THAT(padded_numbers(batch.segments),
              ElementsAre(0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 0));
}

// T = 9, K = 3: sample 1 begins at place 9, and place 18 is none.
TEST(PaddedMaskedPairs, FirstRowsOfSamplesThenRowsOfWordsArePicked) {
  CpuDevice device;
  const Batch batch = pad_masked_pairs(device, two_masked_pairs(), 9, 3, 7);
  EXPECT_THAT(padded_numbers(batch.picked), ElementsAre(0, 9, 2, 18, 18, 12, 13, 15))
      << "[CLS] of both samples; one masked word of sample 0, at its place 2, and room for two "
         "that it has not (2 * 9 = 18); three of sample 1, at places 3, 4 and 6 behind 9";
  EXPECT_THAT(padded_numbers(batch.targets), ElementsAre(0, 1, 11, -1, -1, 21, 22, 24))
      << "labels of both samples, then the words; -1 for none, not 0, which is a word";
}

TEST(PaddedMaskedPairs, OnlyMaskedWordsAreCounted) {
  CpuDevice device;
  EXPECT_EQ(pad_masked_pairs(device, two_masked_pairs(), 9, 5, 7).terms, 4)
      << "1 and 3 words are masked, where there is room for 5 each; neither room nor [CLS] is one";
}

// The more room, the more padding; what a sample has of its own does not change.
TEST(PaddedMaskedPairs, RoomChangesNothingElse) {
  CpuDevice device;
  const Batch tight = pad_masked_pairs(device, two_masked_pairs(), 8, 3, 0);
  const std::int64_t T = drawn("tokens", 9, 40), K = drawn("masked words", 4, 9);
  const Batch wide = pad_masked_pairs(device, two_masked_pairs(), T, K, 0);
  EXPECT_TRUE(same_bits(tight.lengths, wide.lengths));
  EXPECT_EQ(tight.terms, wide.terms);
  for (std::int64_t b = 0; b < 2; ++b) {
    const MaskedPair& pair = two_masked_pairs()[static_cast<std::size_t>(b)];
    const auto row = wide.tokens.rows(b, b + 1).values<std::int32_t>();
    EXPECT_THAT(row.first(pair.tokens.size()), ElementsAreArray(pair.tokens));
    for (std::size_t j = 0; j < static_cast<std::size_t>(K); ++j) {
      const auto at = static_cast<std::size_t>(2 + b * K) + j;
      const bool has = j < pair.places.size();
      EXPECT_EQ(padded_numbers(wide.picked)[at], has ? b * T + pair.places[j] : 2 * T);
      EXPECT_EQ(padded_numbers(wide.targets)[at], has ? pair.targets[j] : -1);
    }
  }
}

TEST(PaddedMaskedPairs, AreNoneOfNone) {
  CpuDevice device;
  const Batch batch = pad_masked_pairs(device, {}, 9, 3, 7);
  EXPECT_EQ(batch.tokens.shape(), (Shape{0, 9}));
  EXPECT_EQ(batch.picked.shape(), (Shape{0}));
  EXPECT_EQ(batch.terms, 0);
}

TEST(PaddingGiven, WrongSamplesAreNamed) {
  CpuDevice device;
  const auto says = [&](MaskedPair pair, std::int64_t T, std::int64_t K,
                        const std::vector<std::string>& fragments) {
    const std::vector<MaskedPair> samples = {two_masked_pairs()[0], std::move(pair)};
    return error_says([&] { pad_masked_pairs(device, samples, T, K, 0); }, fragments);
  };
  const MaskedPair good = two_masked_pairs()[1];
  EXPECT_TRUE(says(good, 7, 3, {"tokens of sample 1", "found 8", "expected 1 to 7"}));
  EXPECT_TRUE(says(good, 8, 2, {"masked words of sample 1", "found 3", "expected 0 to 2"}));
  EXPECT_TRUE(says({}, 8, 3, {"tokens of sample 1", "found 0", "expected 1 to 8"}));
  MaskedPair wrong = good;
  wrong.segments.pop_back();
  EXPECT_TRUE(says(wrong, 8, 3, {"segments of sample 1", "found 7", "expected 8 to 8"}));
  wrong = good;
  wrong.targets.pop_back();
  EXPECT_TRUE(says(wrong, 8, 3, {"targets of sample 1", "found 2", "expected 3 to 3"}));
  wrong = good;
  wrong.places[2] = 8;
  EXPECT_TRUE(says(wrong, 8, 3, {"a masked word's place of sample 1", "found 8", "0 to 7"}));
}

constexpr PairIds kPairIds{.begin = 1, .end = 2, .pad = 9};

// "10 11 12" is "20 21", and "13" is "23 24 25".
TEST(PaddedPairs, ADecoderReadsOnePlaceLater) {
  CpuDevice device;
  const std::vector<std::vector<std::int32_t>> sources = {{10, 11, 12}, {13}};
  const std::vector<std::vector<std::int32_t>> translations = {{20, 21}, {23, 24, 25}};
  const Batch batch = pad_pairs(device, sources, translations, kPairIds, 4, 5);
  EXPECT_EQ(batch.tokens.shape(), (Shape{2, 4}));
  EXPECT_EQ(batch.decoder.shape(), (Shape{2, 5}));
  EXPECT_EQ(batch.targets.shape(), (Shape{2, 5}));
  EXPECT_THAT(padded_numbers(batch.tokens), ElementsAre(10, 11, 12, 9, 13, 9, 9, 9));
  EXPECT_THAT(padded_numbers(batch.lengths), ElementsAre(3, 1)) << "tokens of the sources";
  EXPECT_THAT(padded_numbers(batch.decoder), ElementsAre(1, 20, 21, 9, 9, 1, 23, 24, 25, 9))
      << "begin (1), then the translation, then padding (9)";
  EXPECT_THAT(padded_numbers(batch.targets), ElementsAre(20, 21, 2, -1, -1, 23, 24, 25, 2, -1))
      << "what comes next: the translation, the end (2), then nothing that counts";
  EXPECT_EQ(batch.terms, 7) << "2 + 1 and 3 + 1: a translation's end is to be learnt, too";
}

TEST(PaddedPairs, FillTheirRoom) {
  CpuDevice device;
  const std::vector<std::vector<std::int32_t>> sources = {{10, 11}}, translations = {{20, 21}};
  const Batch batch = pad_pairs(device, sources, translations, kPairIds, 2, 3);
  EXPECT_THAT(padded_numbers(batch.tokens), ElementsAre(10, 11));
  EXPECT_THAT(padded_numbers(batch.decoder), ElementsAre(1, 20, 21));
  EXPECT_THAT(padded_numbers(batch.targets), ElementsAre(20, 21, 2));
}

TEST(PaddedPairs, ATranslationMayBeEmpty) {
  CpuDevice device;
  const std::vector<std::vector<std::int32_t>> sources = {{10}}, translations = {{}};
  const Batch batch = pad_pairs(device, sources, translations, kPairIds, 1, 2);
  EXPECT_THAT(padded_numbers(batch.decoder), ElementsAre(1, 9));
  EXPECT_THAT(padded_numbers(batch.targets), ElementsAre(2, -1));
  EXPECT_EQ(batch.terms, 1) << "the end of a translation is to be said, too";
}

TEST(PaddingGiven, WrongTranslationsAreNamed) {
  CpuDevice device;
  using Lines = std::vector<std::vector<std::int32_t>>;
  const auto says = [&](const Lines& sources, const Lines& translations,
                        const std::vector<std::string>& fragments) {
    return error_says([&] { pad_pairs(device, sources, translations, kPairIds, 2, 3); }, fragments);
  };
  EXPECT_TRUE(says({{10}, {11}}, {{20}}, {"1 translations", "expected 2"}));
  EXPECT_TRUE(says({{10}, {}}, {{20}, {21}}, {"source tokens of sample 1", "found 0", "1 to 2"}));
  EXPECT_TRUE(says({{1, 2, 3}}, {{20}}, {"source tokens of sample 0", "found 3", "1 to 2"}));
  EXPECT_TRUE(says({{1}}, {{5, 6, 7}}, {"translated tokens of sample 0", "found 3", "0 to 2"}));
}

}  // namespace
}  // namespace aisc
