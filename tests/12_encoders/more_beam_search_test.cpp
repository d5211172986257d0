// Beam search against all texts that there are: random tables of a few tokens, tried out.
#include "12_encoders/more/beam_search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "common/core/rng.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

using Text = std::vector<std::int32_t>;
constexpr double kNone = -std::numeric_limits<double>::infinity();

// Log-probabilities that depend on all tokens before.
struct RandomTable {
  std::int64_t vocabulary;
  std::uint64_t seed;
  std::vector<double> row(const Text& text) const {
    std::string name = "text";
    for (const std::int32_t token : text) name += " " + std::to_string(token);
    const Philox random(seed, name);
    std::vector<double> x;
    double sum = 0;
    for (std::int64_t v = 0; v < vocabulary; ++v) {
      x.push_back(random.normal(static_cast<std::uint64_t>(v)) * 1.5);
      sum += std::exp(x.back());
    }
    for (double& logit : x) logit -= std::log(sum);
    return x;
  }
  NextTokens next(int* calls = nullptr) const {
    return [*this, calls](std::span<const Text> texts) {
      if (calls) ++*calls;
      std::vector<std::vector<double>> rows;
      for (const Text& text : texts) rows.push_back(row(text));
      return rows;
    };
  }
  // All texts that end, of at most `most` tokens with the end.
  void all(Text text, double sum, const BeamOptions& o, std::vector<Hypothesis>& found) const {
    const std::vector<double> next = row(text);
    const std::int64_t n = std::ssize(text) + 1;
    const double ended = sum + next[std::size_t(o.end)];
    found.push_back({text, ended, ended / length_penalty(n, o.alpha)});
    if (n == o.most) return;
    text.push_back(0);
    for (std::int32_t v = 0; v < vocabulary; ++v) {
      if (v == o.end) continue;
      text.back() = v;
      all(text, sum + next[std::size_t(v)], o, found);
    }
  }
};

TEST(LengthPenalty, IsEquationFourteen) {
  EXPECT_DOUBLE_EQ(length_penalty(1, 0.6), 1) << "a text of its end alone";
  EXPECT_NEAR(length_penalty(4, 0.6), 1.2754, 1e-4) << "(9 / 6)^.6";
  EXPECT_NEAR(length_penalty(8, 0.6), 1.5903, 1e-4) << "(13 / 6)^.6";
  EXPECT_DOUBLE_EQ(length_penalty(7, 1), 2) << "alpha 1: 12 / 6";
  EXPECT_DOUBLE_EQ(length_penalty(100, 0), 1) << "alpha 0: none";
}

TEST(BeamSearch, FindsTheBestOfAllTextsIfItIsWideEnough) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed)
    for (const double alpha : {0.0, 0.6, 1.0, 3.0}) {
      const RandomTable table{.vocabulary = 2 + std::int64_t(seed % 3), .seed = seed};
      const BeamOptions o{.width = 300, .alpha = alpha, .end = 1, .most = 4};
      std::vector<Hypothesis> all;
      table.all({}, 0, o, all);
      const auto best = std::max_element(
          all.begin(), all.end(), [](const auto& a, const auto& b) { return a.score < b.score; });
      const Hypothesis found = beam_search(table.next(), o).front();
      EXPECT_EQ(found.tokens, best->tokens) << "seed " << seed << ", alpha " << alpha;
      EXPECT_DOUBLE_EQ(found.score, best->score);
      EXPECT_DOUBLE_EQ(found.log_probability, best->log_probability);
    }
}

TEST(BeamSearch, OfWidthOneIsGreedy) {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const RandomTable table{.vocabulary = 4, .seed = seed};
    const BeamOptions o{.width = 1, .end = 0, .most = 6};
    Text greedy;
    for (bool ended = false; !ended && std::ssize(greedy) < o.most - 1;) {
      const std::vector<double> row = table.row(greedy);
      const auto token =
          static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
      ended = token == o.end;
      if (!ended) greedy.push_back(token);
    }
    const std::vector<Hypothesis> found = beam_search(table.next(), o);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].tokens, greedy) << "seed " << seed;
  }
}

// Of more beginnings the best is not worse; and never as good as to beat all texts.
TEST(BeamSearch, GetsNoBetterThanAllTexts) {
  for (std::uint64_t seed = 30; seed < 40; ++seed) {
    const RandomTable table{.vocabulary = 4, .seed = seed};
    BeamOptions o{.width = 2, .end = 2, .most = 5};
    std::vector<Hypothesis> all;
    table.all({}, 0, o, all);
    const std::vector<Hypothesis> found = beam_search(table.next(), o);
    for (const Hypothesis& h : found) {
      const auto same =
          std::find_if(all.begin(), all.end(), [&](const auto& a) { return a.tokens == h.tokens; });
      ASSERT_NE(same, all.end());
      EXPECT_DOUBLE_EQ(h.log_probability, same->log_probability);
      EXPECT_DOUBLE_EQ(h.score, same->score);
    }
    EXPECT_TRUE(std::is_sorted(found.begin(), found.end(),
                               [](const auto& a, const auto& b) { return a.score > b.score; }));
  }
}

// Tokens end, a, b. a is the more probable first token (.5 against .4), but behind b the text ends
// for certain: .4 against .5 x .5.
std::vector<std::vector<double>> garden_path(std::span<const Text> texts) {
  std::vector<std::vector<double>> rows;
  for (const Text& text : texts) {
    std::vector<double> p{.1, .5, .4};
    if (!text.empty()) p = text[0] == 1 ? std::vector{.5, .25, .25} : std::vector{1., 0., 0.};
    for (double& x : p) x = std::log(x);
    rows.push_back(p);
  }
  return rows;
}

TEST(BeamSearch, FindsWhatAGreedyChoicePasses) {
  BeamOptions o{.width = 1, .alpha = 0, .end = 0, .most = 4};
  EXPECT_EQ(beam_search(garden_path, o)[0].tokens, Text{1});
  o.width = 2;
  const std::vector<Hypothesis> found = beam_search(garden_path, o);
  EXPECT_EQ(found[0].tokens, Text{2});
  EXPECT_NEAR(std::exp(found[0].log_probability), .4, 1e-12);
}

TEST(BeamSearch, PrefersShortTextsUnlessTheyPayForIt) {
  // To end at once has .5, or else another token follows, again and again: .5 x .9 x .9 x ...
  const NextTokens next = [](std::span<const Text> texts) {
    const std::size_t n = texts[0].size();
    const double end = n == 0 ? .5 : n == 5 ? .9 : .1;
    return std::vector<std::vector<double>>(texts.size(), {std::log(end), std::log(1 - end)});
  };
  BeamOptions o{.width = 2, .alpha = 0, .end = 0, .most = 7};
  EXPECT_EQ(beam_search(next, o)[0].tokens, Text{});
  o.alpha = 1;  // log(.5 .9^5) = -1.22 over 11 / 6 is -.67, log .5 over 1 is -.69
  EXPECT_EQ(beam_search(next, o)[0].tokens, Text(5, 1));
}

TEST(BeamSearch, EndsWhenTheBestCannotBeBeaten) {
  int calls = 0;
  // It ends for certain: any longer text has minus infinity.
  const auto counted = [&](double end) {
    return [&calls, end](std::span<const Text> texts) {
      ++calls;
      return std::vector<std::vector<double>>(texts.size(), {std::log(end), std::log(1 - end)});
    };
  };
  const BeamOptions o{.width = 3, .alpha = 0.6, .end = 0, .most = 50};
  beam_search(counted(1), o);
  EXPECT_EQ(calls, 1) << "nothing was left to go on with";
  calls = 0;
  // log .9 = -.105; log .1 = -2.30 divided by the most, 9.17^.6 = 3.78, is -.61.
  EXPECT_EQ(beam_search(counted(.9), o).front().tokens, Text{});
  EXPECT_EQ(calls, 1) << "no longer text can be as good";
  calls = 0;
  // log .5 = -.69; the other beginning has it, too, and could become -.18.
  beam_search(counted(.5), o);
  EXPECT_GT(calls, 1) << "a longer text might have been better";
  EXPECT_LT(calls, 50) << "it could not any more";
}

TEST(BeamSearch, TakesSmallerTokensWhereTextsAreEqual) {
  const NextTokens equal = [](std::span<const Text> texts) {
    return std::vector<std::vector<double>>(texts.size(), std::vector<double>(4, std::log(.25)));
  };
  // Two are kept: of all that are equal those with tokens 0 and 1.
  const std::vector<Hypothesis> found =
      beam_search(equal, {.width = 2, .alpha = 0, .end = 3, .most = 2});
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].tokens, Text{0});
  EXPECT_EQ(found[1].tokens, Text{1});
}

TEST(BeamSearch, SaysWhatItCannotSearch) {
  const auto with = [](BeamOptions o, const NextTokens& next) {
    return [=] { beam_search(next, o); };
  };
  const NextTokens plain = RandomTable{3, 1}.next();
  const auto rows = [](std::vector<std::vector<double>> x) {
    return [=](std::span<const Text>) { return x; };
  };
  EXPECT_TRUE(error_says(with({.width = 0, .most = 3}, plain), {"width 0", "1 or more"}));
  EXPECT_TRUE(error_says(with({.most = 0}, plain), {"at most 0 tokens"}));
  EXPECT_TRUE(error_says(with({.alpha = -1, .most = 3}, plain), {"alpha -1"}));
  EXPECT_TRUE(error_says(with({.end = 3, .most = 3}, plain), {"the end is token 3 of 3"}));
  EXPECT_TRUE(error_says(with({.most = 3}, rows({{0}, {0}})), {"2 rows", "expected 1"}));
  EXPECT_TRUE(error_says(with({.most = 3}, rows({{0, .5}})), {"0.5", "at most 0"}));
  EXPECT_TRUE(error_says(with({.most = 3}, rows({{0, std::nan("")}})), {"nan", "at most 0"}));
  EXPECT_TRUE(error_says(with({.most = 3}, rows({{kNone, 0}})), {"no text", "may end"}));
  EXPECT_TRUE(error_says(with({.width = 2, .end = 2, .most = 3},
                              [](std::span<const Text> texts) {
                                std::vector<std::vector<double>> x(texts.size(),
                                                                   std::vector<double>(3, -1));
                                if (texts.size() > 1) x[1].pop_back();
                                return x;
                              }),
                         {"rows of 3 and 2"}));
}

}  // namespace
}  // namespace aisc
