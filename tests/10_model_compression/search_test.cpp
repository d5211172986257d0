// Searches by hand: candidates whose curves are known, who survives which round, and what is spent
// on whom; and shapes of a GPT, counted.
#include "10_model_compression/more/search.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <tuple>

#include "10_model_compression/more/gpt_space.h"
#include "common/comm/launch.h"
#include "common/core/error.h"
#include "common/nn/parameter_store.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

using Counts = std::vector<std::int64_t>;

Counts candidates_of_round(const SearchResult& result, std::int64_t round) {
  Counts candidates;
  for (const Trial& trial : result.trials)
    if (trial.round == round) candidates.push_back(trial.candidate);
  return candidates;
}

Counts budgets_of_round(const SearchResult& result, std::int64_t round) {
  Counts budgets;
  for (const Trial& trial : result.trials)
    if (trial.round == round) budgets.push_back(trial.budget);
  return budgets;
}

// Losses that no budget changes.
Evaluate constant_losses(std::vector<double> losses) {
  return [losses = std::move(losses)](std::int64_t candidate, std::int64_t /*budget*/) {
    return losses.at(static_cast<std::size_t>(candidate));
  };
}

TEST(HalvingRounds, ShareTheBudgetEqually) {
  using Rounds = std::vector<HalvingRound>;
  EXPECT_EQ(halving_rounds(8, 96), (Rounds{{8, 4}, {4, 8}, {2, 16}}))
      << "8 candidates, 96, by halves: three rounds of 32";
  EXPECT_EQ(halving_rounds(5, 90), (Rounds{{5, 6}, {3, 10}, {2, 15}}))
      << "5 candidates: of an odd number the larger half survives";
  EXPECT_EQ(halving_rounds(9, 54, 3), (Rounds{{9, 3}, {3, 9}})) << "9 candidates, by thirds";
  EXPECT_EQ(halving_rounds(4, 100, 8), (Rounds{{4, 25}})) << "eta above n: a random search";
  EXPECT_EQ(halving_rounds(1, 7), (Rounds{{1, 7}})) << "one candidate has the whole budget";
  EXPECT_EQ(halving_rounds(8, 100), (Rounds{{8, 4}, {4, 8}, {2, 16}}))
      << "of 100 / 3 rounds each round's candidates have whole numbers, 4 are left over";
}

TEST(SuccessiveHalving, IsByHand) {
  // Candidate c falls towards (7 - c) / 10, all at the same rate: the order is right at once.
  const auto curves = [](std::int64_t candidate, std::int64_t budget) {
    return 0.1 * static_cast<double>(7 - candidate) + 1 / static_cast<double>(budget);
  };
  const SearchResult result = successive_halving(8, 96, 2, curves);
  EXPECT_EQ(candidates_of_round(result, 0), (Counts{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(candidates_of_round(result, 1), (Counts{4, 5, 6, 7}))
      << "the second round has the four lowest losses of the first, those of 4 to 7";
  EXPECT_EQ(candidates_of_round(result, 2), (Counts{6, 7}));
  EXPECT_TRUE(candidates_of_round(result, 3).empty()) << "three rounds, no more";
  EXPECT_EQ(budgets_of_round(result, 0), Counts(8, 4));
  EXPECT_EQ(budgets_of_round(result, 1), Counts(4, 8));
  EXPECT_EQ(budgets_of_round(result, 2), Counts(2, 16));
  EXPECT_EQ(result.best, 7);
  EXPECT_DOUBLE_EQ(result.loss, 1.0 / 16) << "the last round's loss, not the first one's";
  EXPECT_EQ(result.spent(), 96);
  EXPECT_EQ(result.spent_on(7), 4 + 8 + 16);
  EXPECT_EQ(result.spent_on(4), 4 + 8);
  EXPECT_EQ(result.spent_on(0), 4);
  EXPECT_EQ(result.spent_on(8), 0);
}

// Candidate 0 is ahead of 1 until 10, and behind it from there on. Candidate 3 ends lowest, and is
// last as long as it is looked at.
TEST(SuccessiveHalving, SeesCurvesCrossWhereItStillLooks) {
  const auto curves = [](std::int64_t candidate, std::int64_t budget) {
    const auto b = static_cast<double>(budget);
    const double losses[] = {2, 3 - b / 10, 4, b < 16 ? 5.0 : 0.0};
    return losses[candidate];
  };
  const SearchResult halved = successive_halving(4, 64, 2, curves);  // 4 with 8, 2 with 16
  EXPECT_EQ(candidates_of_round(halved, 1), (Counts{0, 1}));
  EXPECT_EQ(halved.best, 1) << "behind at 8, ahead at 16: the last round decides";
  EXPECT_DOUBLE_EQ(halved.loss, 1.4);
  const SearchResult random = random_search(4, 64, curves);  // 4 with 16
  EXPECT_EQ(random.best, 3) << "what is late is thrown away by halving, and found by random search";
}

TEST(Search, LowerIndexWinsTies) {
  EXPECT_EQ(random_search(3, 3, constant_losses({2, 1, 1})).best, 1);
  const SearchResult result = successive_halving(4, 8, 2, constant_losses({1, 0, 0, 0}));
  EXPECT_EQ(candidates_of_round(result, 1), (Counts{1, 2}));
  EXPECT_EQ(result.best, 1);
  EXPECT_EQ(
      candidates_of_round(successive_halving(6, 18, 2, constant_losses({7, 7, 7, 7, 7, 7})), 1),
      (Counts{0, 1, 2}));
}

TEST(RandomSearch, GivesAllTheSame) {
  const SearchResult result = random_search(3, 32, constant_losses({5, 4, 6}));
  EXPECT_EQ(budgets_of_round(result, 0), Counts(3, 10)) << "32 / 3, rounded down";
  EXPECT_EQ(result.best, 1);
  EXPECT_EQ(result.loss, 4);
  EXPECT_EQ(result.spent(), 30);
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kNoLoss = std::numeric_limits<double>::infinity();

TEST(Search, FailuresAreToldAndAskedNoMore) {
  // Of 8 only 1, 4 and 7 do not fail: three in place of four in round two.
  const auto some_fail = [](std::int64_t candidate, std::int64_t budget) {
    if (candidate % 3 == 0) fail(fmt::format("no memory for {}", candidate));
    if (candidate == 2) return kNan;
    if (candidate == 5) return -kNoLoss;
    if (candidate == 1 && budget == 8) fail("it ran away");
    return static_cast<double>(candidate);
  };
  const SearchResult result = successive_halving(8, 96, 2, some_fail);
  const Trial& third = result.trials.at(3);
  EXPECT_EQ(third.failure, "no memory for 3");
  EXPECT_EQ(third.loss, kNoLoss);
  EXPECT_EQ(third.budget, 4) << "what it got is spent";
  EXPECT_EQ(result.trials.at(2).failure, "its loss is nan, expected a finite number");
  EXPECT_EQ(result.trials.at(5).failure, "its loss is -inf, expected a finite number");
  EXPECT_EQ(result.trials.at(1).failure, "");
  EXPECT_EQ(candidates_of_round(result, 1), (Counts{1, 4, 7}));
  EXPECT_EQ(budgets_of_round(result, 1), Counts(3, 8)) << "the plan's, though there are fewer";
  EXPECT_EQ(candidates_of_round(result, 2), (Counts{4, 7}))
      << "1 was ahead, and fails in round two";
  EXPECT_EQ(result.best, 4);
  EXPECT_EQ(result.spent(), 32 + 24 + 32);
}

TEST(Search, OtherExceptionsPass) {
  const auto unsolved = [](std::int64_t, std::int64_t) -> double {
    throw NotImplemented("10.1", "loss_scale.cpp", 1);
  };
  EXPECT_THROW(random_search(2, 2, unsolved), NotImplemented);
}

TEST(Search, ErrorsSayWhatIsWrong) {
  const Evaluate zero = [](std::int64_t, std::int64_t) { return 0.0; };
  EXPECT_TRUE(
      error_says([&] { random_search(0, 8, zero); }, {"search: 0 candidates, expected 1 or more"}));
  EXPECT_TRUE(error_says([&] { successive_halving(0, 8, 2, zero); },
                         {"search: 0 candidates, expected 1 or more"}));
  EXPECT_TRUE(error_says([&] { random_search(8, 7, zero); },
                         {"a budget of 7 for 8 candidates, expected 8 or more: 1 each"}));
  EXPECT_TRUE(error_says([&] { successive_halving(8, 24, 1, zero); },
                         {"search: eta is 1, expected 2 or more"}));
  EXPECT_TRUE(error_says([&] { successive_halving(8, 23, 2, zero); },
                         {"a budget of 23 for 8 candidates and 3 rounds, expected 24 or more"}));
  const auto late = [](std::int64_t, std::int64_t budget) {
    return budget > 2 ? kNan : static_cast<double>(budget);
  };
  EXPECT_TRUE(error_says([&] { successive_halving(4, 16, 2, late); },
                         {"search: round 1: all 2 candidates failed, candidate 0 with: its loss is "
                          "nan"}));
}

// ---- shapes of a GPT --------------------------------------------------------------------------

TEST(GptSpace, CountsWhatAModelHas) {
  // 3 letters as 4 rows, 5 positions, 2 columns: 18; a block 48 + 26; the last norm 4.
  const GptConfig tiny{
      .layers = 1, .heads = 1, .width = 2, .context = 5, .vocabulary = 3, .vocabulary_multiple = 4};
  EXPECT_EQ(gpt_parameters(tiny), 18 + 48 + 26 + 4);
  EXPECT_EQ(gpt_parameters({}), 124'475'904) << "GPT-2's 124,439,808 and 47 rows of padding";
  launch({.ranks = 1}, [&](const Rank& rank) {
    for (const auto& [layers, heads, width] : {std::tuple{1, 1, 8}, {3, 2, 24}, {2, 5, 40}}) {
      GptConfig config = tiny;
      config.layers = layers;
      config.heads = heads;
      config.width = width;
      config.vocabulary = 27;
      config.vocabulary_multiple = 128;
      Model model = make_gpt(rank, config);
      const ParameterStore store(rank.device, make_units(model), {});
      EXPECT_EQ(gpt_parameters(config), store.parameter_count())
          << layers << " layers, " << heads << " heads, " << width << " columns";
    }
  });
}

GptSpace small_space() {
  GptSpace space;
  space.base = {.context = 32, .vocabulary = 27, .vocabulary_multiple = 1};
  space.parameters = 60'000;
  return space;
}

TEST(GptSpace, HoldsAllShapesOfTheBudget) {
  const GptSpace space = small_space();
  const std::vector<GptConfig> shapes = shapes_within(space);
  using Sizes = std::tuple<std::int64_t, std::int64_t, std::int64_t>;
  std::vector<Sizes> found, expected;
  for (const GptConfig& shape : shapes) found.emplace_back(shape.layers, shape.width, shape.heads);
  for (std::int64_t layers = 1; layers <= space.most_layers; ++layers)
    for (std::int64_t width = 8; width <= 512; width += 8)
      for (const std::int64_t heads : {1, 2, 4, 8}) {
        const std::int64_t count =
            59 * width + layers * (12 * width * width + 13 * width) + 2 * width;
        if (count >= 48'000 && count <= 60'000 && width % heads == 0 && width >= 8 * heads)
          expected.emplace_back(layers, width, heads);
      }
  EXPECT_EQ(found, expected);
  EXPECT_EQ(found.size(), 14u);
  EXPECT_EQ(found.front(), (Sizes{1, 64, 1})) << "one layer: 53,632 parameters";
}

TEST(GptSpace, DrawsDifferentShapesAllEquallyLikely) {
  GptSpace space = small_space();
  const std::size_t all = shapes_within(space).size();
  std::vector<int> drawn_first(all);
  const auto key = [](const GptConfig& c) { return std::tuple(c.layers, c.width, c.heads); };
  std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> keys;
  for (const GptConfig& shape : shapes_within(space)) keys.push_back(key(shape));
  constexpr int kDraws = 4000;
  for (int seed = 0; seed < kDraws; ++seed) {
    const auto first = key(drawn_shapes(space, 1, static_cast<std::uint64_t>(seed)).front());
    ++drawn_first[static_cast<std::size_t>(std::ranges::find(keys, first) - keys.begin())];
  }
  const double mean = kDraws / static_cast<double>(all);
  for (std::size_t i = 0; i < all; ++i)  // five deviations of a count
    EXPECT_NEAR(drawn_first[i], mean, 5 * std::sqrt(mean)) << "shape " << i;

  const auto many = drawn_shapes(space, static_cast<std::int64_t>(all), 7);
  const auto few = drawn_shapes(space, 3, 7);
  std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>> different;
  for (const GptConfig& shape : many) different.insert(key(shape));
  EXPECT_EQ(different.size(), all) << "none twice";
  for (std::size_t i = 0; i < few.size(); ++i) EXPECT_EQ(key(few[i]), key(many[i]));
}

TEST(GptSpace, ErrorsSayWhatIsWrong) {
  GptSpace space = small_space();
  EXPECT_TRUE(error_says([&] { drawn_shapes(space, 1000, 1); },
                         {"gpt space: 1000 shapes wanted, and ", "have 0.8 to 1 times 60000"}));
  space.heads = {0};
  EXPECT_TRUE(error_says([&] { shapes_within(space); }, {"gpt space: 0 heads, expected 1"}));
  space = small_space();
  space.width_step = 0;
  EXPECT_TRUE(error_says([&] { shapes_within(space); }, {"gpt: width is 0"}));
  GptConfig sparse = small_space().base;
  sparse.experts.count = 4;
  EXPECT_TRUE(error_says([&] { gpt_parameters(sparse); }, {"gpt space: 4 experts, expected none"}));
}

}  // namespace
}  // namespace aisc
