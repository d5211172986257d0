// Which words are hidden, and what stands in their place.
#include "12_encoders/masked_words.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/support/drawn.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using MaskIds = std::vector<std::int32_t>;

constexpr SpecialIds kMaskSpecial{.pad = 0, .unknown = 1, .cls = 2, .sep = 3, .mask = 4};
constexpr Masking kSmallMasking{.special = kMaskSpecial, .vocabulary = 25, .most = 9};

// Draws of these orders, all with this fate and word.
std::vector<PlaceDraw> draws_in_order(const std::vector<std::uint64_t>& orders, double fate,
                                      double word = 0) {
  std::vector<PlaceDraw> draws;
  for (const std::uint64_t order : orders) draws.push_back({order, fate, word});
  return draws;
}

// Seven words and three special tokens: 15 % of 7 is 1.05, so one word is to be guessed.
const MaskIds kTenTokens = {2, 10, 11, 12, 3, 13, 14, 15, 16, 3};

TEST(MaskWords, TheSmallestOrderIsToBeGuessed) {
  MaskIds tokens = kTenTokens;
  const MaskedWords masked =
      mask_words(tokens, draws_in_order({0, 9, 8, 3, 1, 7, 5, 4, 6, 2}, 0), kSmallMasking);
  EXPECT_EQ(masked.places, MaskIds{3})
      << "place 3 has the smallest order of a word (3); smaller ones are [CLS]'s and [SEP]'s, "
         "which nobody has to guess";
  EXPECT_EQ(masked.targets, MaskIds{12}) << "the word that stood there";
  EXPECT_THAT(tokens, ElementsAre(2, 10, 11, 4, 3, 13, 14, 15, 16, 3)) << "[MASK] is 4";
}

// Sixteen words: 15 % is 2.4, so two. By the order of places 9 and 4 it is first 9, but places are
// told from the left.
TEST(MaskWords, PlacesAscend) {
  MaskIds tokens(16);
  std::iota(tokens.begin(), tokens.end(), 5);
  std::vector<PlaceDraw> draws = draws_in_order(std::vector<std::uint64_t>(16, 100), 0);
  draws[9].order = 1;
  draws[4].order = 2;
  const MaskedWords masked = mask_words(tokens, draws, kSmallMasking);
  EXPECT_THAT(masked.places, ElementsAre(4, 9)) << "places ascend, whatever the draws' order";
  EXPECT_THAT(masked.targets, ElementsAre(9, 14)) << "targets in the order of the places";
}

TEST(MaskWords, OfEqualOrdersTheFirstPlaceIsToBeGuessed) {
  MaskIds tokens = kTenTokens;
  EXPECT_EQ(mask_words(tokens, draws_in_order(std::vector<std::uint64_t>(10, 5), 0), kSmallMasking)
                .places,
            MaskIds{1})
      << "all orders are equal: the word that comes first";
}

TEST(MaskWords, EightInTenAreHiddenOneChangesOneStays) {
  const auto becomes = [](double fate, double word) {
    MaskIds tokens = {2, 10, 3};
    const MaskedWords masked =
        mask_words(tokens, draws_in_order({0, 1, 2}, fate, word), kSmallMasking);
    EXPECT_EQ(masked.places, MaskIds{1}) << "the only word is to be guessed";
    EXPECT_EQ(masked.targets, MaskIds{10})
        << "fate " << fate
        << ": the target is the word that stood there, whatever stands there now";
    EXPECT_EQ(tokens.front(), 2);
    EXPECT_EQ(tokens.back(), 3);
    return tokens[1];
  };
  EXPECT_EQ(becomes(0, .5), kMaskSpecial.mask) << "a fate below .8: [MASK]";
  EXPECT_EQ(becomes(.7999, .5), kMaskSpecial.mask);
  EXPECT_EQ(becomes(.8, .5), 15) << "below .9: a word; .5 of the words 5 .. 24 is 15";
  EXPECT_EQ(becomes(.8999, 0), 5);
  EXPECT_EQ(becomes(.9, .5), 10) << "from .9 on it stays, and is a target nevertheless";
  EXPECT_EQ(becomes(.9999, .5), 10);
}

TEST(MaskWords, AreAtMostSoMany) {
  MaskIds tokens(40);
  std::iota(tokens.begin(), tokens.end(), 100);
  std::vector<std::uint64_t> orders(40);
  for (std::size_t i = 0; i < 40; ++i) orders[i] = 40 - i;
  const MaskedWords masked = mask_words(tokens, draws_in_order(orders, 0),
                                        {.special = kMaskSpecial, .vocabulary = 200, .most = 4});
  EXPECT_THAT(masked.places, ElementsAre(36, 37, 38, 39))
      << "15 % of 40 words are 6, there is room for 4: those with the smallest orders";
}

TEST(MaskWords, SpecialTokensAloneHaveNothingToGuess) {
  MaskIds tokens = {2, 1, 3, 1, 3, 0};
  const MaskIds before = tokens;
  const MaskedWords masked =
      mask_words(tokens, draws_in_order({0, 1, 2, 3, 4, 5}, 0), kSmallMasking);
  EXPECT_THAT(masked.places, IsEmpty()) << "what the vocabulary cannot say is no word to guess";
  EXPECT_EQ(tokens, before);
}

TEST(MaskingGiven, NeedsADrawForEachToken) {
  MaskIds tokens = {2, 10, 3};
  EXPECT_TRUE(error_says(
      [&] {
        mask_words(tokens, draws_in_order({0, 1}, 0), kSmallMasking);
      },
      {"mask_words", "2 draws", "3 tokens"}));
}

// How far a count of `of` draws of probability p may be from its mean: five standard deviations of
// the binomial law, which one count in 1.7 million exceeds.
double five_deviations(double of, double p) { return 5 * std::sqrt(of * p * (1 - p)); }

// 20,000 samples of 40 words between [CLS] and [SEP]s: 6 words of each.
TEST(MaskWords, StatisticsAreThoseOfThePaper) {
  constexpr std::int64_t kSamples = 20000, kWords = 40;
  const Masking masking{.special = kMaskSpecial, .vocabulary = 1005, .most = 20};
  const auto seed = static_cast<std::uint64_t>(drawn("seed of masks", 1, 1000));
  double hidden = 0, equal = 0;
  std::vector<double> at_place(kWords + 3);
  for (std::int64_t i = 0; i < kSamples; ++i) {
    MaskIds tokens(kWords + 3);
    for (std::size_t t = 0; t < tokens.size(); ++t)
      tokens[t] = 5 + static_cast<std::int32_t>((i * 7 + static_cast<std::int64_t>(t) * 13) % 1000);
    tokens.front() = kMaskSpecial.cls;
    tokens[20] = tokens.back() = kMaskSpecial.sep;
    const MaskIds before = tokens;
    const MaskedWords masked =
        mask_words(tokens, place_draws(seed, i, std::ssize(tokens)), masking);
    ASSERT_EQ(masked.places.size(), 6u);
    ASSERT_EQ(masked.targets.size(), 6u);
    MaskIds restored = tokens;
    for (std::size_t j = 0; j < 6; ++j) {
      const auto place = static_cast<std::size_t>(masked.places[j]);
      ASSERT_FALSE(kMaskSpecial.contains(before[place])) << "sample " << i << ": a special token";
      ASSERT_EQ(masked.targets[j], before[place]);
      restored[place] = masked.targets[j];
      at_place[place] += 1;
      if (tokens[place] == kMaskSpecial.mask) {
        hidden += 1;
      } else {
        ASSERT_FALSE(kMaskSpecial.contains(tokens[place]))
            << "a word never becomes a special token";
        equal += tokens[place] == before[place];
      }
    }
    ASSERT_EQ(restored, before) << "only words that are to be guessed change";
  }
  // Of the words drawn at random one in a thousand is the one that stood there.
  const double all = 6.0 * kSamples;
  EXPECT_NEAR(hidden, .8 * all, five_deviations(all, .8)) << "four in five are [MASK]";
  EXPECT_NEAR(equal, .1001 * all, five_deviations(all, .1001)) << "one in ten stays";
  for (std::size_t t = 0; t < at_place.size(); ++t)
    if (t != 0 && t != 20 && t != 42) {
      EXPECT_NEAR(at_place[t], .15 * kSamples, five_deviations(kSamples, .15))
          << "place " << t << ": each of 40 words is as likely to be one of the 6";
    }
}

TEST(MaskingGiven, FifteenPercentAreToBeGuessed) {
  EXPECT_EQ(masked_count(100, 99), 15);
  EXPECT_EQ(masked_count(10, 99), 2);  // 1.5: a half goes up
  EXPECT_EQ(masked_count(30, 99), 5);  // 4.5
  EXPECT_EQ(masked_count(9, 99), 1);
  EXPECT_EQ(masked_count(1, 99), 1);
  EXPECT_EQ(masked_count(0, 99), 0);
  EXPECT_EQ(masked_count(100, 14), 14);
  EXPECT_EQ(most_masked(128), 19);
  EXPECT_EQ(most_masked(512), 77);
  EXPECT_EQ(most_masked(1), 1);
}

TEST(MaskingGiven, WordsAreWhatIsNotSpecial) {
  EXPECT_EQ(count_words(kTenTokens, kMaskSpecial), 7);
  EXPECT_EQ(count_words(MaskIds{0, 1, 2, 3, 4}, kMaskSpecial), 0);
  EXPECT_EQ(count_words(MaskIds{}, kMaskSpecial), 0);
}

// BERT's vocabulary has [PAD] at 0 and the others at 100 .. 103; here it is small and they are
// apart.
TEST(MaskingGiven, AWordIsNeverSpecialAndAllAreAsLikely) {
  const Masking masking{.special = {.pad = 0, .unknown = 3, .cls = 9, .sep = 4, .mask = 6},
                        .vocabulary = 10};
  MaskIds words;
  for (int i = 0; i < 5; ++i) words.push_back(word_of((i + .5) / 5, masking));
  EXPECT_THAT(words, ElementsAre(1, 2, 5, 7, 8));
  EXPECT_EQ(word_of(0, masking), 1);
  EXPECT_EQ(word_of(1 - 0x1p-32, masking), 8);
}

TEST(MaskingGiven, ADrawIsOfSeedSampleAndPlace) {
  const auto draws = place_draws(1, 77, 50);
  const auto same = [&](const std::vector<PlaceDraw>& others) {
    std::int64_t equal = 0;
    for (std::size_t t = 0; t < others.size(); ++t) {
      const bool is_same = others[t].order == draws[t].order && others[t].fate == draws[t].fate &&
                           others[t].word == draws[t].word;
      equal += is_same;
    }
    return equal;
  };
  EXPECT_EQ(same(place_draws(1, 77, 20)), 20) << "whatever the sample's length";
  EXPECT_EQ(same(place_draws(1, 78, 50)), 0);
  EXPECT_EQ(same(place_draws(2, 77, 50)), 0);
}

}  // namespace
}  // namespace aisc
