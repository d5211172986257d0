// The course's own translation: lines by hand, pieces that give the text back, and lines that are
// held out for certain.
#include "12_encoders/more/toy_translation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/nn/gpt_fixture.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

TEST(ToyLines, AreGermanAndEnglish) {
  const std::tuple<std::int64_t, const char*, const char*> numbers[] = {
      {0, "zero", "null"},
      {1, "one", "eins"},
      {7, "seven", "sieben"},
      {12, "twelve", "zwölf"},
      {16, "sixteen", "sechzehn"},
      {17, "seventeen", "siebzehn"},
      {20, "twenty", "zwanzig"},
      {21, "twenty-one", "einundzwanzig"},
      {30, "thirty", "dreißig"},
      {66, "sixty-six", "sechsundsechzig"},
      {77, "seventy-seven", "siebenundsiebzig"},
      {100, "one hundred", "einhundert"},
      {101, "one hundred one", "einhunderteins"},
      {1000, "one thousand", "eintausend"},
      {1001, "one thousand one", "eintausendeins"},
      {21'000, "twenty-one thousand", "einundzwanzigtausend"},
      {101'000, "one hundred one thousand", "einhunderteintausend"},
      {342'105, "three hundred forty-two thousand one hundred five",
       "dreihundertzweiundvierzigtausendeinhundertfünf"},
      {999'999, "nine hundred ninety-nine thousand nine hundred ninety-nine",
       "neunhundertneunundneunzigtausendneunhundertneunundneunzig"}};
  for (const auto& [n, english, german] : numbers) {
    EXPECT_EQ(english_number(n), english);
    EXPECT_EQ(german_number(n), german);
  }
  EXPECT_EQ(english_date(0), "January 1, 1900");
  EXPECT_EQ(german_date(0), "1. Januar 1900");
  EXPECT_EQ(english_date(35'855), "March 3, 1998");
  EXPECT_EQ(german_date(35'855), "3. März 1998");
  EXPECT_EQ(german_date(36'583), "29. Februar 2000");
  EXPECT_EQ(english_date(kToyDays - 1), "December 31, 2099");
}

TEST(ToyLines, AreOfValuesInRange) {
  for (const std::int64_t n : {std::int64_t{-1}, kToyNumbers}) {
    EXPECT_TRUE(error_says([&] { english_number(n); }, {"number", std::to_string(n), "999999"}));
    EXPECT_TRUE(error_says([&] { german_number(n); }, {"number", std::to_string(n), "999999"}));
  }
  EXPECT_TRUE(error_says([] { english_date(-1); }, {"day -1", "0 to 73048"}));
  EXPECT_TRUE(error_says([] { german_date(kToyDays); }, {"day 73049"}));
  EXPECT_TRUE(error_says([] { held_out_lines(-1); }, {"-1 held-out lines"}));
  EXPECT_TRUE(error_says([] { held_out_lines(10'001); }, {"10001 held-out lines"}));
}

// All numbers below 3,000 and many above; the longest line is as long as the constants say.
TEST(ToyVocabulary, CutsEveryLineIntoPiecesThatGiveItBack) {
  const ToyVocabulary vocabulary;
  std::size_t longest_source = 0, longest_target = 0;
  std::set<std::int32_t> used;
  const auto cut = [&](const std::string& text, std::size_t& longest) {
    const std::vector<std::int32_t> ids = vocabulary.encode(text);
    longest = std::max(longest, ids.size());
    used.insert(ids.begin(), ids.end());
    ASSERT_EQ(vocabulary.decode(ids), text);
  };
  for (std::int64_t n = 0; n < kToyNumbers; n += n < 3000 ? 1 : 997) {
    cut(english_number(n), longest_source);
    cut(german_number(n), longest_target);
  }
  cut(english_number(777'777), longest_source);
  cut(german_number(777'777), longest_target);
  for (std::int64_t day = 0; day < kToyDays; day += 13) {
    cut(english_date(day), longest_source);
    cut(german_date(day), longest_target);
  }
  EXPECT_EQ(std::int64_t(longest_source), kToySource);
  EXPECT_EQ(std::int64_t(longest_target) + 1, kToyTarget) << "and its end";
  EXPECT_EQ(std::ssize(used) + 3, vocabulary.size()) << "every piece is of use";
}

TEST(ToyVocabulary, TakesTheLongestPiece) {
  const ToyVocabulary vocabulary;
  const auto pieces = [&](std::string_view text) {
    std::vector<std::string> all;
    for (const std::int32_t id : vocabulary.encode(text)) all.push_back(vocabulary.decode({id}));
    return all;
  };
  using Pieces = std::vector<std::string>;
  EXPECT_EQ(pieces("sechsundsechzig"), (Pieces{"sechs", "und", "sech", "zig"}));
  EXPECT_EQ(pieces("seventy-seven"), (Pieces{"seventy", "-", "seven"}));
  EXPECT_EQ(pieces("einhunderteins"), (Pieces{"ein", "hundert", "eins"}));
  EXPECT_EQ(pieces(""), Pieces{});
  EXPECT_EQ(vocabulary.decode({0, 1, 2}), "[begin][end][pad]");
  EXPECT_TRUE(error_says([&] { vocabulary.encode("one million"); },
                         {"no piece begins \"million\"", "at byte 4"}));
  EXPECT_TRUE(error_says([&] { vocabulary.encode("[end]"); }, {"at byte 0"}))
      << "the three are no text";
  EXPECT_TRUE(error_says([&] { vocabulary.decode({-1}); }, {"token -1"}));
  EXPECT_TRUE(error_says([&] { vocabulary.decode({std::int32_t(vocabulary.size())}); },
                         {"token " + std::to_string(vocabulary.size())}));
}

TEST(ToyLines, OfTrainingAndHeldOutOnesAreNeverTheSame) {
  std::set<std::string> trained;
  for (std::int64_t i = 0; i < 20'000; ++i)
    trained.insert(toy_line(1, i, ToyLines::Training).english);
  const std::vector<ToyLine> held_out = held_out_lines(2000);
  std::set<std::string> different;
  for (const ToyLine& line : held_out) {
    EXPECT_FALSE(trained.contains(line.english)) << line.english << " was trained on";
    different.insert(line.english);
  }
  EXPECT_EQ(different.size(), held_out.size()) << "a line occurs twice";
  EXPECT_EQ(held_out_lines(7).back(), held_out[6]) << "always the same";
  EXPECT_TRUE(held_out_lines(0).empty());
  EXPECT_TRUE(trained.contains("zero")) << "numbers of one and two digits are all trained on";
}

TEST(ToyLines, ArePureFunctionsOfSeedAndIndex) {
  EXPECT_EQ(toy_line(5, 3, ToyLines::Training), toy_line(5, 3, ToyLines::Training));
  int same = 0, dates = 0;
  for (std::int64_t i = 0; i < 4000; ++i) {
    const ToyLine line = toy_line(5, i, ToyLines::Training);
    same += line == toy_line(6, i, ToyLines::Training) ? 1 : 0;
    dates += line.english.find(',') != std::string::npos ? 1 : 0;
  }
  EXPECT_LT(same, 200) << "another seed, other lines, but for short numbers";
  EXPECT_NEAR(dates, 1000, 4 * 28) << "one in four is a date, within four standard deviations";
}

TEST(TranslationSamples, AreTheSameHoweverTheyAreDivided) {
  TestWorld world;
  const TranslationSamples samples(3);
  const Batch all = samples.batch(world.device, 10, 6);
  EXPECT_EQ(all.tokens.shape(), (Shape{6, kToySource}));
  EXPECT_EQ(all.decoder.shape(), (Shape{6, kToyTarget}));
  EXPECT_EQ(all.targets.shape(), (Shape{6, kToyTarget}));
  EXPECT_EQ(samples.terms(10, 6), all.terms);
  const auto copied = samples.copy();
  double terms = 0;
  for (std::int64_t i = 0; i < 6; ++i) {
    const Batch one = copied->batch(world.device, 10 + i, 1);
    EXPECT_TRUE(same_bits(one.tokens, all.tokens.rows(i, i + 1)));
    EXPECT_TRUE(same_bits(one.lengths, all.lengths.rows(i, i + 1)));
    EXPECT_TRUE(same_bits(one.decoder, all.decoder.rows(i, i + 1)));
    EXPECT_TRUE(same_bits(one.targets, all.targets.rows(i, i + 1)));
    terms += one.terms;
  }
  EXPECT_EQ(terms, all.terms);
  EXPECT_EQ(samples.terms(0, 0), 0);
}

TEST(TranslationSamples, SayTheLinesInPieces) {
  TestWorld world;
  const ToyVocabulary vocabulary;
  const Batch batch = toy_batch(world.device, {{"twenty-one", "einundzwanzig"}});
  const auto ids = [](const Tensor& x) {
    const auto all = x.values<std::int32_t>();
    return std::vector<std::int32_t>(all.begin(), all.end());
  };
  EXPECT_EQ(vocabulary.decode(ids(batch.tokens)).substr(0, 15), "twenty-one[pad]");
  EXPECT_EQ(ids(batch.lengths), std::vector<std::int32_t>{3});
  EXPECT_EQ(vocabulary.decode(ids(batch.decoder)).substr(0, 25), "[begin]einundzwanzig[pad]");
  std::vector<std::int32_t> targets = ids(batch.targets);
  EXPECT_EQ(std::count(targets.begin(), targets.end(), -1), kToyTarget - 4);
  targets.resize(4);
  EXPECT_EQ(vocabulary.decode(targets), "einundzwanzig[end]");
  EXPECT_EQ(batch.terms, 4);
}

}  // namespace
}  // namespace aisc
