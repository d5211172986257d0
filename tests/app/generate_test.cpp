// Which token is drawn from which logits, by hand; and that generated text is the one that the
// uncached forward pass would give, also where the context is full.
#include "app/generate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tests/nn/gpt_fixture.h"
#include "tests/support/devices.h"
#include "tests/support/error_says.h"
#include "tests/support/ledger_checks.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// How often each token is drawn over an even grid of uniform numbers: shares with 3 exact digits.
constexpr int kGrid = 10000;
std::vector<double> shares(const std::vector<double>& logits, const GenerateOptions& options) {
  std::vector<int> counts(logits.size());
  for (int i = 0; i < kGrid; ++i)
    ++counts[static_cast<std::size_t>(draw(logits, options, (i + 0.5) / kGrid))];
  std::vector<double> result;
  for (const int count : counts) result.push_back(static_cast<double>(count) / kGrid);
  return result;
}

void expect_shares(const std::vector<double>& logits, const GenerateOptions& options,
                   const std::vector<double>& expected) {
  const std::vector<double> found = shares(logits, options);
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], expected[i], 1.5 / kGrid) << "token " << i;
}

// Probabilities 4/15, 1/15, 8/15, 2/15 at temperature 1.
const std::vector<double> kLogits{std::log(4), std::log(1), std::log(8), std::log(2)};

TEST(Draw, FollowsTheProbabilities) {
  expect_shares(kLogits, {.temperature = 1}, {4 / 15.0, 1 / 15.0, 8 / 15.0, 2 / 15.0});
}

// Temperature 1/2 squares the odds, temperature 2 takes their roots.
TEST(Draw, SharpensAndFlattensByTemperature) {
  expect_shares(kLogits, {.temperature = 0.5}, {16 / 85.0, 1 / 85.0, 64 / 85.0, 4 / 85.0});
  const double r = std::sqrt(2.0), all = 2 + 1 + 2 * r + r;
  expect_shares(kLogits, {.temperature = 2}, {2 / all, 1 / all, 2 * r / all, r / all});
  expect_shares(kLogits, {.temperature = 1e-300}, {0, 0, 1, 0});
}

TEST(Draw, AtTemperatureZeroTakesTheLikeliestWithTheLowestId) {
  for (const double uniform : {0.0, 0.5, 0.999}) {
    EXPECT_EQ(draw(kLogits, {.temperature = 0}, uniform), 2);
    EXPECT_EQ(draw(std::vector<double>{1, 3, 3, 2, 3}, {.temperature = 0}, uniform), 1);
  }
}

TEST(Draw, OfTopKTakesTheKLikeliestAndOfEqualOnesTheLowerIds) {
  expect_shares(kLogits, {.temperature = 1, .top_k = 1}, {0, 0, 1, 0});
  expect_shares(kLogits, {.temperature = 1, .top_k = 2}, {1 / 3.0, 0, 2 / 3.0, 0});
  expect_shares(kLogits, {.temperature = 1, .top_k = 3}, {4 / 14.0, 0, 8 / 14.0, 2 / 14.0});
  for (const std::int64_t all : {0, 4, 100})
    EXPECT_EQ(shares(kLogits, {.temperature = 1, .top_k = all}),
              shares(kLogits, {.temperature = 1}));
  expect_shares({1, 1, 1, 1, 1}, {.temperature = 1, .top_k = 2}, {0.5, 0.5, 0, 0, 0});
  expect_shares({0, 1, 0, 1, 1}, {.temperature = 1, .top_k = 2}, {0, 0.5, 0, 0.5, 0});
}

// In order of probability the sums are 8/15, 12/15, 14/15, 1: the first that reaches p ends the
// set.
TEST(Draw, OfTopPTakesTheSmallestSetThatReachesIt) {
  const auto of = [](double p) { return GenerateOptions{.temperature = 1, .top_p = p}; };
  expect_shares(kLogits, of(1e-9), {0, 0, 1, 0});  // at least one
  expect_shares(kLogits, of(0.53), {0, 0, 1, 0});
  expect_shares(kLogits, of(0.54), {1 / 3.0, 0, 2 / 3.0, 0});
  expect_shares(kLogits, of(0.79), {1 / 3.0, 0, 2 / 3.0, 0});
  expect_shares(kLogits, of(0.81), {4 / 14.0, 0, 8 / 14.0, 2 / 14.0});
  expect_shares(kLogits, of(0.93), {4 / 14.0, 0, 8 / 14.0, 2 / 14.0});
  expect_shares(kLogits, of(0.94), {4 / 15.0, 1 / 15.0, 8 / 15.0, 2 / 15.0});
  expect_shares({1, 1, 1, 1}, of(0.5), {0.5, 0.5, 0, 0});  // a sum that is p exactly is enough
}

// Top-p looks at the probabilities after the temperature, among the top k: 8/12 of two tokens
// reaches 0.6 alone, 8/15 of four does not; at temperature 1/2 64/85 does.
TEST(Draw, AppliesTemperatureThenTopKThenTopP) {
  expect_shares(kLogits, {.temperature = 1, .top_p = 0.6}, {1 / 3.0, 0, 2 / 3.0, 0});
  expect_shares(kLogits, {.temperature = 1, .top_k = 2, .top_p = 0.6}, {0, 0, 1, 0});
  expect_shares(kLogits, {.temperature = 0.5, .top_p = 0.7}, {0, 0, 1, 0});
}

// The set of top-p against a full sort, at GPT-2's size.
TEST(Draw, OfManyTokensKeepsTheSetThatAFullSortKeeps) {
  const Philox random(4, "logits");
  std::vector<double> logits(50257);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = random.normal(i);
  std::vector<std::pair<double, std::int32_t>> sorted;
  double all = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    sorted.emplace_back(std::exp(logits[i]), -static_cast<std::int32_t>(i));
    all += sorted.back().first;
  }
  std::sort(sorted.rbegin(), sorted.rend());
  for (const double p : {0.01, 0.5, 0.9}) {
    std::int32_t last = -1, kept = 0;  // the highest id of the set: the end of [0, 1) is its
    for (double sum = 0; sum < p * all; ++kept) {
      sum += sorted[static_cast<std::size_t>(kept)].first;
      last = std::max(last, -sorted[static_cast<std::size_t>(kept)].second);
    }
    EXPECT_GT(kept, 1);
    EXPECT_EQ(draw(logits, {.temperature = 1, .top_p = p}, 1 - 1e-12), last) << p;
    EXPECT_EQ(draw(logits, {.temperature = 1, .top_k = kept}, 1 - 1e-12), last) << p;
    EXPECT_EQ(draw(logits, {.temperature = 1}, 1 - 1e-12), 50256);
  }
}

TEST(Draw, NeverDrawsWhatIsImpossibleAndRefusesWhatIsNoNumber) {
  expect_shares({-kInfinity, 0, -kInfinity, 0, -kInfinity}, {.temperature = 1},
                {0, 0.5, 0, 0.5, 0});
  EXPECT_EQ(draw(std::vector<double>{-kInfinity, 0}, {.temperature = 1}, 0.0), 1);
  EXPECT_EQ(draw(std::vector<double>{0, -kInfinity}, {.temperature = 1}, 1 - 1e-17), 0);
  for (const std::vector<double>& logits :
       {std::vector<double>{0, NAN, 1}, {0, kInfinity}, {-kInfinity, -kInfinity}})
    for (const double temperature : {0.0, 1.0})
      EXPECT_TRUE(error_says([&] { draw(logits, {.temperature = temperature}, 0.5); },
                             {"logits are not finite"}));
  EXPECT_TRUE(error_says([] { draw({}, {}, 0.5); }, {"no logits"}));
}

TEST(Draw, NamesOptionsThatCannotBe) {
  const auto says = [](const GenerateOptions& options, const std::vector<std::string>& fragments) {
    EXPECT_TRUE(error_says([&] { draw(kLogits, options, 0.5); }, fragments));
  };
  says({.temperature = -1}, {"temperature is -1", "0 or more"});
  says({.temperature = NAN}, {"temperature is nan"});
  says({.temperature = kInfinity}, {"temperature is inf"});
  says({.top_k = -1}, {"top_k is -1", "0 or more"});
  for (const double p : {0.0, -0.1, 1.1, double(NAN)})
    says({.top_p = p}, {"top_p is", "0 < top_p <= 1"});
}

using Tokens = std::vector<std::int32_t>;

// The greedy continuation by whole forward passes over the window that generate() documents: all
// that was seen, or the last half of the context each time it is full.
Tokens greedy_uncached(const TestGpt& gpt, const Tokens& prompt, std::int64_t count,
                       Device& device) {
  const std::int64_t context = gpt.config.context, V = gpt.config.vocabulary;
  Tokens window = prompt, result;
  for (std::int64_t i = 0; i < count; ++i) {
    if (static_cast<std::int64_t>(window.size()) > context)
      window.assign(window.end() - std::max<std::int64_t>(context / 2, 1), window.end());
    const auto T = static_cast<std::int64_t>(window.size());
    const Tensor tokens = std::move(ids_tensor(window, device)).reshaped({1, T});
    const std::vector<double> logits =
        to_doubles(as_rows(forward(gpt.model, tokens)).rows(T - 1, T));
    const auto best = std::max_element(logits.begin(), logits.begin() + V);
    window.push_back(static_cast<std::int32_t>(best - logits.begin()));
    result.push_back(window.back());
  }
  return result;
}

class Generate : public PerDevice {};
INSTANTIATE_TEST_SUITE_P(Devices, Generate, ::testing::ValuesIn(device_kinds()),
                         device_kind_test_name);

TEST_P(Generate, IsTheGreedyTextOfTheUncachedForward) {
  for (const std::int64_t context : {1, 2, 11}) {
    TestWorld world(GetParam());
    GptConfig config = odd_config();
    config.context = context;
    TestGpt gpt(world, config);
    const NoLeak no_leak(world.device);
    for (const Tokens& prompt : {Tokens{3}, Tokens{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
                                 Tokens{12, 0, 11, 1, 10, 2, 9, 3, 8, 4, 7, 5, 6}}) {
      EXPECT_EQ(
          generate(world.rank, gpt.model, gpt.config, prompt, {.tokens = 40, .temperature = 0}),
          greedy_uncached(gpt, prompt, 40, world.device))
          << "context " << context << ", prompt of " << prompt.size();
    }
  }
}

// Every pass but the first is one of one token: its activations are as many after 150 tokens as
// after 20, and those of a window of 150 would be 150 times as many.
TEST_P(Generate, PassesOneTokenAtATime) {
  TestWorld world(GetParam());
  GptConfig config = odd_config();
  config.context = 200;
  TestGpt gpt(world, config);
  const auto peak = [&](std::int64_t count) {
    world.device.reset_peaks();
    EXPECT_EQ(generate(world.rank, gpt.model, gpt.config, Tokens{3}, {.tokens = count}).size(),
              static_cast<std::size_t>(count));
    return world.device.ledger().total.peak_bytes;
  };
  EXPECT_EQ(peak(150), peak(20));
}

TEST_P(Generate, RepeatsWithTheSameSeed) {
  TestWorld world(GetParam());
  TestGpt gpt(world, odd_config());
  const GenerateOptions options{.tokens = 30, .temperature = 1, .seed = 3};
  const Tokens a = generate(world.rank, gpt.model, gpt.config, Tokens{1, 2}, options);
  EXPECT_EQ(a.size(), 30u);
  EXPECT_EQ(a, generate(world.rank, gpt.model, gpt.config, Tokens{1, 2}, options));
  EXPECT_NE(a, generate(world.rank, gpt.model, gpt.config, Tokens{1, 2},
                        {.tokens = 30, .temperature = 1, .seed = 4}));
  EXPECT_EQ(generate(world.rank, gpt.model, gpt.config, Tokens{1, 2}, {.tokens = 0}), Tokens{});
}

TEST(GenerateOnTheCpu, StopsWhenAskedAndAtTheEndOfTheText) {
  TestWorld world;
  TestGpt gpt(world, odd_config());
  const GenerateOptions options{.tokens = 30, .temperature = 1, .seed = 3};
  const Tokens all = generate(world.rank, gpt.model, gpt.config, Tokens{1}, options);
  Tokens seen;
  const Tokens some =
      generate(world.rank, gpt.model, gpt.config, Tokens{1}, options, [&](std::int32_t token) {
        seen.push_back(token);
        return seen.size() < 5;
      });
  EXPECT_EQ(some, Tokens(all.begin(), all.begin() + 5));
  EXPECT_EQ(seen, some);

  GenerateOptions with_end = options;
  with_end.end_of_text = all[7];
  const auto end = std::find(all.begin(), all.end(), all[7]);
  seen.clear();
  EXPECT_EQ(generate(world.rank, gpt.model, gpt.config, Tokens{1}, with_end,
                     [&](std::int32_t token) {
                       seen.push_back(token);
                       return true;
                     }),
            Tokens(all.begin(), end));
  EXPECT_EQ(seen, Tokens(all.begin(), end));
}

// The table has 16 rows, of which 13 are the vocabulary: the others are never drawn, nor is what is
// beyond `classes`; a flat distribution draws everything else.
TEST(GenerateOnTheCpu, DrawsOnlyClasses) {
  TestWorld world;
  TestGpt gpt(world, odd_config());
  for (const std::int64_t classes : {0, 13, 4}) {
    const std::int64_t expected = classes == 4 ? 4 : 13;
    std::vector<int> counts(16);
    for (const std::int32_t token :
         generate(world.rank, gpt.model, gpt.config, Tokens{12},
                  {.tokens = 300, .temperature = 100, .classes = classes}))
      ++counts[static_cast<std::size_t>(token)];
    for (std::int64_t i = 0; i < 16; ++i)
      EXPECT_EQ(counts[static_cast<std::size_t>(i)] > 0, i < expected) << i;
  }
}

TEST(GenerateOnTheCpu, NamesWhatItCannotContinue) {
  TestWorld world;
  TestGpt gpt(world, odd_config());
  const auto says = [&](const Tokens& prompt, const GenerateOptions& options,
                        const std::vector<std::string>& fragments) {
    EXPECT_TRUE(error_says([&] { generate(world.rank, gpt.model, gpt.config, prompt, options); },
                           fragments));
  };
  says({}, {}, {"prompt is empty"});
  says({1, 13}, {}, {"prompt[1] is 13", "token < 13"});
  says({-1}, {}, {"prompt[0] is -1", "token < 13"});
  says({1}, {.tokens = -1}, {"tokens is -1"});
  says({1}, {.classes = 14}, {"classes is 14", "0 to 13"});
  says({1}, {.classes = -1}, {"classes is -1"});
  says({1}, {.tokens = 0, .temperature = -1}, {"temperature is -1"});
}

}  // namespace
}  // namespace aisc
