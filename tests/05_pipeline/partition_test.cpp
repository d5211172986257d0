// Layers over stages against all cuts that there are.
#include "05_pipeline/partition.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "05_pipeline/planner.h"
#include "tests/support/drawn.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

using Begins = std::vector<std::int64_t>;

template <class T>
std::string list(const std::vector<T>& all) {
  std::ostringstream text;
  for (std::size_t i = 0; i < all.size(); ++i) text << (i == 0 ? "" : " ") << all[i];
  return text.str();
}

double slowest(const std::vector<double>& seconds, const Begins& begins) {
  double most = 0;
  for (std::size_t s = 0; s < begins.size(); ++s) {
    const std::int64_t end = s + 1 < begins.size() ? begins[s + 1] : std::ssize(seconds);
    most = std::max(most, std::accumulate(seconds.begin() + begins[s], seconds.begin() + end, 0.0));
  }
  return most;
}

// Every way to cut: bit i of `mask`, and layer i + 1 begins a stage.
Begins brute_force(const std::vector<double>& seconds, int stages) {
  Begins best;
  for (unsigned mask = 0; mask < 1U << (seconds.size() - 1); ++mask) {
    Begins begins{0};
    for (std::int64_t i = 1; i < std::ssize(seconds); ++i)
      if ((mask >> (i - 1) & 1U) != 0) begins.push_back(i);
    if (std::ssize(begins) != stages) continue;
    const double here = slowest(seconds, begins);
    const double least =
        best.empty() ? std::numeric_limits<double>::infinity() : slowest(seconds, best);
    if (here < least || (here == least && begins < best)) best = begins;
  }
  return best;
}

::testing::AssertionResult is_cut(const std::vector<double>& seconds, int stages,
                                  const Begins& expected, const std::string& why) {
  const Begins found = cut(seconds, stages);
  if (found == expected) return ::testing::AssertionSuccess();
  auto failure = ::testing::AssertionFailure()
                 << "Layers of " << list(seconds) << " seconds over " << stages
                 << " stages: the begins are " << list(found) << ", expected " << list(expected);
  const bool is_a_cut =
      std::ssize(found) == stages && found[0] == 0 &&
      std::adjacent_find(found.begin(), found.end(), std::greater_equal<>()) == found.end() &&
      found.back() < std::ssize(seconds);
  if (!is_a_cut) return failure << ". One begin for each stage is expected, rising from 0";
  const double here = slowest(seconds, found), least = slowest(seconds, expected);
  failure << (why.empty() ? "" : " (" + why + ")");
  if (here > least)
    return failure << ". The slowest stage takes " << here << " seconds, and " << least
                   << " is possible. Stages that are filled up to the mean one after another are "
                      "not the best, and it is the largest sum that counts, not the sum of all";
  return failure << ". Both take " << here << " seconds, and the smallest begins count, also where "
                 << "a later stage could be shorter than the slowest";
}
void expect_cut(const std::vector<double>& seconds, int stages, const Begins& expected,
                const std::string& why = "") {
  EXPECT_TRUE(is_cut(seconds, stages, expected, why));
}

// 1+2+3 | 4+5 is 9, 1+2+3+4 | 5 is 10, 1+2 | 3+4+5 is 12.
TEST(Cut, FiveLayersOverTwoStagesByHand) { expect_cut({1, 2, 3, 4, 5}, 2, {0, 3}); }

// 1+2+3 | 4 | 5 is 6; 1+2 | 3+4 | 5 is 7.
TEST(Cut, FiveLayersOverThreeStagesByHand) { expect_cut({1, 2, 3, 4, 5}, 3, {0, 3, 4}); }

TEST(Cut, StagesAreNotFilledUpToTheMean) {
  expect_cut({1, 1, 1, 9}, 2, {0, 3}, "the mean is 6, and the last layer alone is 9");
  expect_cut({4, 4, 4, 4, 4}, 2, {0, 2}, "8 | 12 and 12 | 8 are as fast");
  expect_cut({5, 1, 5, 1, 5}, 2, {0, 2}, "6 | 11 and 11 | 6 are as fast");
}

TEST(Cut, OfEquallyGoodOnesTheSmallestBegins) {
  expect_cut({10, 1, 1, 1, 1}, 3, {0, 1, 2}, "10 | 1 | 3 comes before 10 | 2 | 2");
  expect_cut({1, 1, 10, 1, 1}, 4, {0, 1, 2, 3}, "1 | 1 | 10 | 2 comes before 2 | 10 | 1 | 1");
}

TEST(Cut, OneStageHasAllLayersAndOneLayerEachIsTheOtherEnd) {
  for (const int layers : {1, 2, 5, 9}) {
    std::vector<double> seconds;
    Begins each;
    for (int i = 0; i < layers; ++i) {
      each.push_back(i);
      seconds.push_back(static_cast<double>(drawn("layer " + std::to_string(i), 0, 9)));
    }
    expect_cut(seconds, 1, {0});
    expect_cut(seconds, layers, each);
  }
}

TEST(Cut, EqualLayersDivideEvenly) {
  expect_cut(std::vector<double>(12, 0.5), 4, {0, 3, 6, 9});
  expect_cut(std::vector<double>(12, 1), 3, {0, 4, 8});
  expect_cut(std::vector<double>(10, 1), 4, {0, 1, 4, 7}, "the early stages are the short ones");
}

TEST(Cut, AHugeLayerStandsAlone) {
  for (std::int64_t huge = 0; huge < 7; ++huge) {
    std::vector<double> seconds(7, 1);
    seconds[static_cast<std::size_t>(huge)] = 100;
    expect_cut(seconds, 3, brute_force(seconds, 3),
               "layer " + std::to_string(huge) + " takes as long as a hundred others");
  }
}

// 1 | 1+1 takes as much more than 1+1 | 1 as one bit does, and all of it takes no time to speak of.
TEST(Cut, IsExactHoweverSmallTheDifferencesAre) {
  expect_cut({1, 1, 1 + 0x1p-40}, 2, {0, 2}, "1 | 1+1.0000000000009 is slower than 1+1 | 1");
  std::vector<double> tiny{1, 2, 3, 4, 5};
  for (double& seconds : tiny) seconds *= 0x1p-50;
  expect_cut(tiny, 3, {0, 3, 4}, "layers of femtoseconds");
}

TEST(Cut, LayersThatTakeNothing) {
  expect_cut({0, 0, 0, 0}, 2, {0, 1});
  expect_cut({0, 3, 0, 0, 3, 0}, 3, brute_force({0, 3, 0, 0, 3, 0}, 3));
}

TEST(Cut, IsTheBestOfAllCuts) {
  for (int layers = 1; layers <= 12; ++layers) {
    const std::string name = "cut of " + std::to_string(layers) + " layers: ";
    std::vector<double> seconds;
    const std::int64_t most = drawn(name + "most", 1, 40);
    for (int i = 0; i < layers; ++i)
      seconds.push_back(static_cast<double>(drawn(name + std::to_string(i), 0, most)) / 4);
    for (int stages = 1; stages <= layers; ++stages)
      expect_cut(seconds, stages, brute_force(seconds, stages));
  }
}

TEST(Cut, ManyLayersAreNoWork) {
  Begins even;
  for (std::int64_t s = 0; s < 40; ++s) even.push_back(10 * s);
  expect_cut(std::vector<double>(400, 1), 40, even);
}

TEST(CutGiven, RefusesWhatCannotBeCut) {
  const std::vector<double> three{1, 2, 3};
  EXPECT_TRUE(error_says([&] { cut(three, 0); }, {"cut: 0 stages, expected 1 or more"}));
  EXPECT_TRUE(error_says([&] { cut(three, 4); }, {"3 layers over 4 stages", "one layer a stage"}));
  EXPECT_TRUE(error_says([] { cut({}, 1); }, {"0 layers over 1 stages"}));
  for (const double bad :
       {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
    EXPECT_TRUE(error_says(
        [&] {
          cut(std::vector<double>{1, bad}, 1);
        },
        {"cut: layer 1 takes", "expected 0 or more"}));
}

// GPT-2 of 124 million weights: embedding and head have their seconds in the ends.
TEST(Cut, OfAGptLeavesTheHeadsStageFewerBlocks) {
  const GptConfig gpt2;
  const std::vector<double> seconds =
      block_seconds(gpt2, gpt_layer_seconds(find_machine("dgx-a100"), gpt2, 4, 1024));
  for (const int stages : {2, 3, 4}) {
    const Begins best = brute_force(seconds, stages);
    EXPECT_LT(12 - best.back(), 12 / stages) << "blocks beside the head: " << list(best);
    expect_cut(seconds, stages, best);
  }
}

}  // namespace
}  // namespace aisc
