// Which texts stand side by side. The documents are two_documents(): sentences of 4, 3, 5, 6 tokens
// and 2, 2 in the first, of 3, 7, 4 in the second, each token with its own number.
#include "12_encoders/sentence_pairs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "tests/formats/some_documents.h"
#include "tests/support/drawn.h"

namespace aisc {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

const Documents& small_documents() {
  static const Documents documents(two_documents(), counted_tokens);
  return documents;
}

// first, first + 1, ... , last
std::vector<std::int32_t> counted_from_to(std::int32_t first, std::int32_t last) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(last - first + 1));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// As a list, which a failure shows number by number.
std::vector<std::int32_t> tokens_in(std::span<const std::int32_t> text) {
  return {text.begin(), text.end()};
}

bool cut_always_last(std::int64_t /*k*/) { return false; }

// Draws of a pair that begins with neighbours `start` of six, and takes all the room.
PairDraws draws_of(int start, double split, double label, double other = 0) {
  return {.start = (start + .5) / 6,
          .shorter = .5,
          .split = split,
          .label = label,
          .other = other,
          .cut_first = cut_always_last};
}

TEST(SentencePair, BIsWhatIsLeftOfTheChunk) {
  const SentencePair pair = sentence_pair(small_documents(), 15, draws_of(0, .5, .49));
  EXPECT_EQ(pair.label, 0);
  EXPECT_THAT(tokens_in(pair.a), ElementsAreArray(counted_from_to(100, 106)))
      << "room for 12 tokens: a chunk of sentences of 4, 3 and 5; A is 1 + floor(.5 * 2) of them";
  EXPECT_THAT(tokens_in(pair.b), ElementsAreArray(counted_from_to(107, 111)));
}

TEST(SentencePair, BothHaveAtLeastASentence) {
  const SentencePair least = sentence_pair(small_documents(), 15, draws_of(0, 0, 0));
  EXPECT_THAT(tokens_in(least.a), ElementsAreArray(counted_from_to(100, 103)));
  EXPECT_THAT(tokens_in(least.b), ElementsAreArray(counted_from_to(104, 111)));
  const SentencePair most = sentence_pair(small_documents(), 15, draws_of(0, .999, 0));
  EXPECT_THAT(tokens_in(most.a), ElementsAreArray(counted_from_to(100, 106)));
  EXPECT_THAT(tokens_in(most.b), ElementsAreArray(counted_from_to(107, 111)));
}

TEST(SentencePair, AChunkEndsWithItsStretch) {
  const SentencePair pair = sentence_pair(small_documents(), 100, draws_of(1, 0, 0));
  EXPECT_THAT(tokens_in(pair.a), ElementsAreArray(counted_from_to(104, 106)));
  EXPECT_THAT(tokens_in(pair.b), ElementsAreArray(counted_from_to(107, 117)))
      << "the stretch ends with 117: what comes in the next one does not follow";
  const SentencePair last = sentence_pair(small_documents(), 100, draws_of(3, 0, 0));
  EXPECT_THAT(tokens_in(last.a), ElementsAre(200, 201));
  EXPECT_THAT(tokens_in(last.b), ElementsAre(202, 203));
}

// Room 20; a target is 2 + floor(19 u).
TEST(SentencePair, OneInTenIsShorter) {
  PairDraws draws = draws_of(0, .999, 0);
  const auto tokens = [&](double shorter, double target) {
    draws.shorter = shorter;
    draws.target = target;
    const SentencePair pair = sentence_pair(small_documents(), 23, draws);
    return std::ssize(pair.a) + std::ssize(pair.b);
  };
  EXPECT_EQ(tokens(.1, 0), 18) << "not below .1: the target is the room, 20; the stretch has 18";
  EXPECT_EQ(tokens(.0999, 0), 7) << "a target of 2: two sentences are the least";
  EXPECT_EQ(tokens(0, 5.5 / 19), 7) << "a target of 7 is reached by 4 + 3";
  EXPECT_EQ(tokens(0, 6.5 / 19), 12) << "a target of 8 is not";
  EXPECT_EQ(tokens(0, .999), 18) << "a target of 20";
}

TEST(SentencePair, ABThatDoesNotFollowIsOfAnotherDocument) {
  const SentencePair pair = sentence_pair(small_documents(), 100, draws_of(0, 0, .5, 0));
  EXPECT_EQ(pair.label, 1) << "a draw of .5 and more: B does not follow";
  EXPECT_THAT(tokens_in(pair.a), ElementsAreArray(counted_from_to(100, 103)));
  EXPECT_THAT(tokens_in(pair.b), ElementsAreArray(counted_from_to(303, 313)))
      << "behind the first sentence of the other document, up to its end: there is room";
  EXPECT_THAT(tokens_in(sentence_pair(small_documents(), 100, draws_of(3, 0, .5, .999)).b),
              ElementsAreArray(counted_from_to(310, 313)))
      << "the other stretch of the same document is no other document";
}

// Of the second document the others have four neighbours, whose second sentences begin with these.
TEST(SentencePair, ABThatDoesNotFollowNeverBeginsAStretch) {
  const std::int32_t firsts[] = {104, 107, 112, 202};
  for (int i = 0; i < 4; ++i) {
    const SentencePair pair =
        sentence_pair(small_documents(), 100, draws_of(5, 0, .9, (i + .5) / 4));
    ASSERT_FALSE(pair.b.empty()) << "B has no token";
    EXPECT_EQ(pair.b.front(), firsts[i])
        << "where B begins, behind the first of neighbours " << i << " of the other document";
  }
}

TEST(SentencePair, ABThatDoesNotFollowFillsTheTarget) {
  PairDraws draws = draws_of(0, 0, .9);
  draws.shorter = 0;
  draws.target = 9.5 / 97;  // 11 = 4 + 7
  EXPECT_THAT(tokens_in(sentence_pair(small_documents(), 100, draws).b),
              ElementsAreArray(counted_from_to(303, 309)))
      << "a target of 11 tokens: A has 4, so B ends when it has 7";
  draws.target = 10.5 / 97;  // 12
  EXPECT_THAT(tokens_in(sentence_pair(small_documents(), 100, draws).b),
              ElementsAreArray(counted_from_to(303, 313)));
}

TEST(SentencePair, IsCutToTheRoom) {
  const SentencePair follows = sentence_pair(small_documents(), 13, draws_of(0, .5, 0));
  EXPECT_THAT(tokens_in(follows.a), ElementsAreArray(counted_from_to(100, 104)))
      << "7 and 5 tokens, room for 10: two go, both of A, which is longer until then";
  EXPECT_THAT(tokens_in(follows.b), ElementsAreArray(counted_from_to(107, 111)));
  PairDraws draws = draws_of(0, 0, .9);
  draws.cut_first = [](std::int64_t k) { return k % 2 == 0; };
  const SentencePair other = sentence_pair(small_documents(), 15, draws);
  EXPECT_EQ(other.a.size(), 4u);
  EXPECT_THAT(tokens_in(other.b), ElementsAreArray(counted_from_to(305, 312)))
      << "4 and 11 tokens, room for 12: B loses its first token, its last, its first";
}

SentencePair pair_of_tokens(const std::vector<std::int32_t>& a,
                            const std::vector<std::int32_t>& b) {
  return {.a = a, .b = b};
}

TEST(TruncatePair, TheLongerTextLosesTokens) {
  const auto a = counted_from_to(1, 9), b = counted_from_to(21, 23);
  SentencePair pair = pair_of_tokens(a, b);
  truncate_pair(pair, 7, cut_always_last);
  EXPECT_THAT(tokens_in(pair.a), ElementsAre(1, 2, 3, 4)) << "9 and 3 tokens to 7: A loses five";
  EXPECT_THAT(tokens_in(pair.b), ElementsAre(21, 22, 23));
  truncate_pair(pair, 5, cut_always_last);
  EXPECT_THAT(tokens_in(pair.a), ElementsAre(1, 2, 3))
      << "A, where texts of 4 and 3 tokens are cut to 5: A loses one, then they are equal, and B "
         "loses one";
  EXPECT_THAT(tokens_in(pair.b), ElementsAre(21, 22));
}

TEST(TruncatePair, TokensGoAtTheEndThatIsDrawn) {
  const auto a = counted_from_to(1, 9), b = counted_from_to(21, 22);
  SentencePair pair = pair_of_tokens(a, b);
  std::vector<std::int64_t> asked;
  truncate_pair(pair, 6, [&](std::int64_t k) {
    asked.push_back(k);
    return k == 0 || k >= 3;
  });
  EXPECT_THAT(asked, ElementsAre(0, 1, 2, 3, 4)) << "a draw for each token that goes";
  EXPECT_THAT(tokens_in(pair.a), ElementsAre(4, 5, 6, 7))
      << "the first, the last two, two first ones";
}

TEST(TruncatePair, WhatFitsStays) {
  const auto a = counted_from_to(1, 4), b = counted_from_to(21, 23);
  SentencePair pair = pair_of_tokens(a, b);
  std::int64_t draws = 0;
  truncate_pair(pair, 7, [&](std::int64_t) { return ++draws > 0; });
  EXPECT_EQ(pair.a.size() + pair.b.size(), 7u);
  EXPECT_EQ(draws, 0);
  truncate_pair(pair, 6, cut_always_last);
  EXPECT_EQ(pair.a.size() + pair.b.size(), 6u);
}

// 20 documents of 400 sentences of one token, token 1000 d + s: what a pair is can be read off it,
// and a pair that follows has as many tokens as the target says.
const Documents& long_documents() {
  static const Documents documents = [] {
    std::vector<Document> texts(20);
    for (std::int32_t d = 0; d < 20; ++d) {
      Stretch& stretch = texts[static_cast<std::size_t>(d)].emplace_back();
      for (std::int32_t s = 0; s < 400; ++s) stretch.push_back(counted_sentence(1000 * d + s, 1));
    }
    return Documents(texts, counted_tokens);
  }();
  return documents;
}

// Five standard deviations of the number of successes among `of` trials: one count in 1.7 million
// is farther from its mean.
double five_sigma(double of, double p) { return 5 * std::sqrt(of * p * (1 - p)); }

TEST(SentencePair, StatisticsAreThoseOfThePaper) {
  constexpr std::int64_t kSamples = 20000, kRoom = 32;
  const auto seed = static_cast<std::uint64_t>(drawn("seed of pairs", 1, 1000));
  double follows = 0, fills = 0, long_a = 0;
  std::vector<double> documents_of_b(20);
  for (std::int64_t i = 0; i < kSamples; ++i) {
    const SentencePair pair = sentence_pair(long_documents(), kRoom + 3, pair_draws(seed, i));
    ASSERT_GE(pair.a.size(), 1u);
    ASSERT_GE(pair.b.size(), 1u);
    ASSERT_LE(pair.a.size() + pair.b.size(), 32u);
    const std::int32_t from_a = pair.a.front() / 1000, from_b = pair.b.front() / 1000;
    if (pair.label == 0) {
      follows += 1;
      ASSERT_EQ(pair.b.front(), pair.a.back() + 1) << "sample " << i << ": B follows A";
    } else {
      ASSERT_NE(from_a, from_b) << "sample " << i << ": B is of another document";
      documents_of_b[static_cast<std::size_t>(from_b)] += 1;
    }
    fills += pair.a.size() + pair.b.size() == 32;
    long_a += pair.a.size() > 16;
  }
  EXPECT_NEAR(follows, .5 * kSamples, five_sigma(kSamples, .5)) << "every other B follows";
  // Nine in ten want all the room, and of the shorter ones one in 31; but of 399 beginnings (A's,
  // and of every other pair B's) the last 31 or fewer are too near to the end.
  EXPECT_LT(fills, (.9 + .1 / 31) * kSamples + five_sigma(kSamples, .9));
  EXPECT_GT(fills, (.9 - 2 * 31. / 399) * kSamples - five_sigma(kSamples, .75));
  // Of 31 ways to part 32 sentences 15 give A more than 16; less often where they are fewer.
  EXPECT_LT(long_a, 15. / 31 * kSamples + five_sigma(kSamples, .5));
  EXPECT_GT(long_a, .75 * 15. / 31 * kSamples - five_sigma(kSamples, .4));
  for (const double count : documents_of_b)
    EXPECT_NEAR(count, kSamples / 40., five_sigma(kSamples, 1. / 40)) << "documents of equal size";
}

TEST(PairGiven, DrawsAreOfSeedAndSample) {
  const PairDraws draws = pair_draws(1, 77), same = pair_draws(1, 77);
  EXPECT_EQ(draws.start, same.start);
  EXPECT_EQ(draws.other, same.other);
  EXPECT_NE(draws.start, pair_draws(1, 78).start);
  EXPECT_NE(draws.start, pair_draws(2, 77).start);
  int first = 0;
  for (std::int64_t k = 0; k < 100; ++k) {
    EXPECT_EQ(draws.cut_first(k), same.cut_first(k));
    first += draws.cut_first(k);
  }
  EXPECT_NEAR(first, 50, 25) << "five standard deviations";
  for (const double draw :
       {draws.start, draws.shorter, draws.target, draws.split, draws.label, draws.other}) {
    EXPECT_GE(draw, 0);
    EXPECT_LT(draw, 1);
  }
}

TEST(PairGiven, TextsAreJoinedBySpecialTokens) {
  const std::vector<std::int32_t> a = {10, 11}, b = {20};
  const MaskedPair sample = joined({.a = a, .b = b, .label = 1},
                                   {.pad = 0, .unknown = 1, .cls = 101, .sep = 102, .mask = 103});
  EXPECT_THAT(sample.tokens, ElementsAre(101, 10, 11, 102, 20, 102));
  EXPECT_THAT(sample.segments, ElementsAre(0, 0, 0, 0, 1, 1));
  EXPECT_EQ(sample.label, 1);
  EXPECT_TRUE(sample.places.empty());
}

}  // namespace
}  // namespace aisc
