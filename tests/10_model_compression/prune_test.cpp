// Which weights go: the schedule and the threshold by hand, then against sorting.
#include "10_model_compression/prune.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "common/core/range.h"
#include "common/core/rng.h"
#include "tests/support/drawn.h"
#include "tests/support/error_says.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

using ::testing::ElementsAre;

const PruneSchedule kTwoRounds{.sparsity = 0.8, .begin = 10, .end = 30, .rounds = 2};

std::uint32_t key(double w) { return magnitude_key(w); }

std::vector<std::uint32_t> keys_of_numbers(const std::vector<double>& numbers) {
  std::vector<std::uint32_t> keys;
  for (const double w : numbers) keys.push_back(key(w));
  return keys;
}

// The oracle: what sorting says.
std::uint32_t sorted_threshold(std::vector<std::uint32_t> keys, std::int64_t goes) {
  std::sort(keys.begin(), keys.end());
  return keys[index(goes)];
}

TEST(Prune, ScheduleByHand) {
  const auto at = [](std::int64_t steps) { return sparsity_at(steps, kTwoRounds); };
  EXPECT_EQ(at(0), 0) << "to .8 from step 10 to 30 in two rounds: before them nothing goes";
  EXPECT_EQ(at(19), 0) << "the first round is behind step 20: from `begin` on a round takes "
                          "(30 - 10) / 2 = 10 steps";
  EXPECT_NEAR(at(20), 0.7, 1e-15) << "behind the first of two rounds: .8 (1 - (1/2)^3) = .7";
  EXPECT_NEAR(at(29), 0.7, 1e-15) << "between rounds the share stays";
  EXPECT_NEAR(at(30), 0.8, 1e-15) << "behind the last round all of .8 is gone";
  EXPECT_NEAR(at(1000), 0.8, 1e-15) << "behind the end nothing comes back, and no more goes";
}

TEST(Prune, OneRoundIsAllAtOnce) {
  const PruneSchedule once{.sparsity = 0.9, .begin = 4, .end = 5};
  EXPECT_EQ(sparsity_at(4, once), 0);
  EXPECT_DOUBLE_EQ(sparsity_at(5, once), 0.9);
}

// Rounds that do not divide the steps, from a begin that is drawn: each share comes at the first
// step behind i / rounds of the way.
TEST(Prune, RoundsAreEvenlySpread) {
  const PruneSchedule s{.sparsity = 0.95,
                        .begin = drawn("begin of pruning", 0, 9),
                        .end = drawn("end of pruning", 31, 40),
                        .rounds = 7};
  for (std::int64_t step = 0; step < 50; ++step) {
    std::int64_t over = 0;
    while (over < 7 && (over + 1) * (s.end - s.begin) <= 7 * (step - s.begin)) ++over;
    const double left = (7.0 - static_cast<double>(over)) / 7;
    EXPECT_NEAR(sparsity_at(step, s), 0.95 * (1 - std::pow(left, 3)), 1e-12)
        << "behind step " << step << " of " << s.begin << " to " << s.end << ", 7 rounds";
  }
}

TEST(Prune, NextDigitByHand) {
  std::vector<std::int64_t> counts(kDigits);
  counts[0] = 3, counts[2] = 4, counts[3] = 1;
  ThresholdSearch search{.smaller = 5};
  narrow(search, counts);
  EXPECT_EQ(search.prefix, 2u << 24) << "counts 3 0 4 1, and 5 are to be smaller: the digit is 2, "
                                        "the highest of four";
  EXPECT_EQ(search.smaller, 2) << "of the 4 keys with digit 2 there are 5 - 3 to be smaller";
  EXPECT_EQ(search.shift, 16) << "the next digit is 8 bits further down";
  ThresholdSearch border{.smaller = 3};
  narrow(border, counts);
  EXPECT_EQ(border.prefix, 2u << 24)
      << "3 keys have digit 0, and all 3 are to be smaller: the threshold has the next digit";
  EXPECT_EQ(border.smaller, 0);
}

TEST(Prune, DigitsAreCountedOfKeysThatBeginAlike) {
  const std::vector<std::uint32_t> keys{0x3f800000, 0x3f9a0000, 0x3f9b0000, 0x40800000, 0x3f9affff};
  std::vector<std::int64_t> counts(kDigits);
  count_digits(keys, {}, counts);
  EXPECT_EQ(counts[0x3f], 4) << "four of five keys begin with 3f";
  EXPECT_EQ(counts[0x40], 1);
  std::fill(counts.begin(), counts.end(), 0);
  count_digits(keys, {.prefix = 0x3f000000, .shift = 16}, counts);
  EXPECT_EQ(counts[0x80], 1) << "the key that begins with 40 does not count any more";
  EXPECT_EQ(counts[0x9a], 2);
  count_digits(keys, {.prefix = 0x3f000000, .shift = 16}, counts);
  EXPECT_EQ(counts[0x9a], 4) << "counts are added to what is there: ranks count part by part";
}

// Eight weights, of which half go.
TEST(Prune, HalfOfEightByHand) {
  const std::vector<std::uint32_t> keys =
      keys_of_numbers({0.5, -0.1, 0.3, -0.9, 0.2, 0.05, -0.4, 0.7});
  const std::uint32_t threshold = magnitude_threshold(keys, 4);
  EXPECT_EQ(threshold, key(0.4)) << "the smallest that stays of .5 .1 .3 .9 .2 .05 .4 .7";
  std::vector<std::uint8_t> kept(8, 1);
  prune_below(keys, threshold, kept);
  EXPECT_THAT(kept, ElementsAre(1, 0, 0, 1, 0, 0, 1, 1))
      << "signs do not matter: -.4 stays, and -.1 goes";
}

TEST(Prune, WhatIsGoneStaysGone) {
  std::vector<std::uint8_t> kept{1, 0, 1, 0};
  prune_below(keys_of_numbers({1, 2, 3, 4}), key(2), kept);
  EXPECT_THAT(kept, ElementsAre(0, 0, 1, 0))
      << "1 goes now; 2 and 4 were gone before, whatever their numbers are";
}

TEST(Prune, EqualMagnitudesStayTogether) {
  const std::vector<std::uint32_t> keys = keys_of_numbers({1, -2, 2, 2, 3});
  std::vector<std::uint8_t> kept(5, 1);
  prune_below(keys, magnitude_threshold(keys, 2), kept);
  EXPECT_THAT(kept, ElementsAre(0, 1, 1, 1, 1))
      << "two of 1 2 2 2 3 shall go, but the second smallest is one of three: all three stay";
}

TEST(Prune, ThresholdIsThatOfSorting) {
  for (const std::int64_t n : {std::int64_t{1}, std::int64_t{2}, std::int64_t{255},
                               std::int64_t{256}, drawn("weights to prune", 300, 3000)}) {
    const Philox random(test_seed(), "weights to prune");
    std::vector<double> spread, few, same(index(n), 0.25);
    for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(n); ++i) {
      spread.push_back(random.normal(i) * std::pow(10.0, static_cast<double>(i % 40) - 20));
      few.push_back(static_cast<double>(random.below(i, 5)) - 2);  // -2 .. 2: ties, and zeros
    }
    for (const auto& numbers : {spread, few, same}) {
      const std::vector<std::uint32_t> keys = keys_of_numbers(numbers);
      for (const std::int64_t goes : {std::int64_t{0}, n / 3, n / 2, n - 1})
        EXPECT_EQ(magnitude_threshold(keys, goes), sorted_threshold(keys, goes))
            << goes << " of " << n << " weights go";
    }
  }
}

// Two ranks with parts of different sizes add up their counts.
TEST(Prune, PartsAddUpToTheWhole) {
  const std::int64_t n = drawn("weights of two ranks", 100, 500), first = n / 3;
  const Philox random(test_seed(), "weights of two ranks");
  std::vector<std::uint32_t> keys;
  for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(n); ++i)
    keys.push_back(key(random.normal(i)));
  const std::span<const std::uint32_t> all(keys);
  ThresholdSearch search{.smaller = n / 2};
  for (int digit = 0; digit < 4; ++digit) {
    std::vector<std::int64_t> counts(kDigits);
    count_digits(all.first(index(first)), search, counts);
    count_digits(all.subspan(index(first)), search, counts);
    narrow(search, counts);
  }
  EXPECT_EQ(search.prefix, sorted_threshold(keys, n / 2));
}

TEST(Prune, MaskedWeightsAreExactlyZero) {
  CpuDevice device;
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16}) {
    const Tensor w = from_doubles({1, -2, 0.5, -0.25}, {4}, dtype, device);
    apply_mask(w, std::vector<std::uint8_t>{1, 0, 0, 1});
    EXPECT_THAT(to_doubles(w), ElementsAre(1, 0, 0, -0.25)) << name_of(dtype);
  }
}

// To .8 from step 10 to 30 in two rounds: the calls behind steps.
TEST(Prune, EveryUpdateIsMaskedByHand) {
  using Calls = std::vector<double>;
  Calls calls;  // -1: a mask, else the share up to which is pruned
  const auto behind = [&](std::int64_t steps, double reached) {
    calls.clear();
    return behind_update(
        steps, kTwoRounds, reached, [&] { calls.push_back(-1); },
        [&](double sparsity) { calls.push_back(std::round(1000 * sparsity) / 1000); });
  };
  EXPECT_NEAR(behind(19, 0), 0, 1e-15);
  EXPECT_EQ(calls, (Calls{-1})) << "in a step without a round (19) the mask alone";
  const double gone = behind(20, 0);
  EXPECT_NEAR(gone, 0.7, 1e-15);
  EXPECT_EQ(calls, (Calls{-1, 0.7}))
      << "behind step 20 a round takes .7: the mask first, since magnitudes are ranked then, and "
         "what is gone ranks as 0";
  EXPECT_EQ(behind(21, gone), gone);
  EXPECT_EQ(calls, (Calls{-1}))
      << "behind the round momentum still moves what is gone: the mask in every step";
  EXPECT_NEAR(behind(30, gone), 0.8, 1e-15);
  EXPECT_EQ(calls, (Calls{-1, 0.8}))
      << "behind step 30 another round takes weights up to .8 of all, not .1 more of what is left";
  EXPECT_NEAR(behind(45, 0), 0.8, 1e-15);
  EXPECT_EQ(calls, (Calls{-1, 0.8})) << "nothing is gone yet, and all rounds are over";
}

TEST(Prune, OnceLeavesTheShareThatIsAsked) {
  CpuDevice device;
  for (const double sparsity : {0.0, 0.29, 0.5, 0.9, 0.99}) {
    const std::int64_t rows = drawn("rows to prune", 10, 40);
    const Tensor w = random_tensor({rows, 25}, DType::F32, device, "to prune");
    prune_once(w, sparsity);
    const std::vector<double> left = to_doubles(w);
    EXPECT_EQ(std::count(left.begin(), left.end(), 0.0),
              std::llround(sparsity * static_cast<double>(w.count())))
        << sparsity << " of " << w.count() << " weights, to the nearest whole";
  }
}

TEST(PruneGiven, KeysAreInTheOrderOfMagnitudes) {
  const std::vector<double> rising{0, 1e-45, 1e-40, 1e-20, 0.1, 1, 1.0000001, 2, 1e30, INFINITY};
  for (std::size_t i = 1; i < rising.size(); ++i)
    EXPECT_LT(key(rising[i - 1]), key(rising[i])) << rising[i];
  EXPECT_EQ(key(-3), key(3));
  EXPECT_EQ(key(-0.0), 0u);
  CpuDevice device;
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16})
    EXPECT_EQ(magnitude_keys(from_doubles({-2, 0, 0.5}, {3}, dtype, device)),
              keys_of_numbers({2, 0, 0.5}));
}

TEST(PruneGiven, MatricesOfBlocksGo) {
  const auto goes = [](const char* name, const Shape& shape) {
    return can_be_pruned(whole_parameter(name, shape, {}, true));
  };
  EXPECT_TRUE(goes("blocks.0.mlp.fc.weight", {4, 2}));
  EXPECT_TRUE(goes("blocks.11.attention.qkv.weight", {6, 2}));
  EXPECT_FALSE(goes("wte.weight", {4, 2}));
  EXPECT_FALSE(goes("blocks.0.norm1.weight", {4}));
  EXPECT_FALSE(goes("blocks.0.mlp.fc.bias", {4}));
  EXPECT_FALSE(goes("blocks.0.mlp.router.weight", {4, 2}));
  EXPECT_FALSE(goes("blocks.0.mlp.fc.weight", {3, 4, 2}));  // of three experts
}

TEST(PruneGiven, RefusesSchedulesThatMakeNoSense) {
  const auto says = [](const PruneSchedule& schedule, const std::string& words) {
    return error_says([&] { schedule.validate(); }, {words});
  };
  EXPECT_TRUE(says({.sparsity = 1}, "a sparsity of 1: expected a share from 0 to below 1"));
  EXPECT_TRUE(says({.sparsity = -0.1}, "a sparsity of -0.1"));
  EXPECT_TRUE(says({.sparsity = NAN}, "a sparsity of nan"));
  EXPECT_TRUE(says({.begin = 5, .end = 5},
                   "pruning from step 5 to step 5: expected 0 or more, and a later one"));
  EXPECT_TRUE(says({.begin = -1, .end = 5}, "pruning from step -1 to step 5"));
  EXPECT_TRUE(says({.begin = 2, .end = 5, .rounds = 4},
                   "4 rounds of pruning in 3 steps: expected 1 to one a step"));
  EXPECT_TRUE(says({.end = 5, .rounds = 0}, "0 rounds of pruning in 5 steps"));
  kTwoRounds.validate();
}

TEST(PruneGiven, NothingHasNoThreshold) { EXPECT_EQ(magnitude_threshold({}, 0), 0u); }

}  // namespace
}  // namespace aisc
