// Which units are whole when: by hand, and what every schedule promises.
#include "04_sharding/gather_schedule.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/support/drawn.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

// A layer a unit; `tied`: the last layer reads unit 0, too.
std::vector<LayerUnits> chain(std::size_t layers, bool tied = false) {
  std::vector<LayerUnits> all;
  for (std::size_t i = 0; i < layers; ++i) {
    all.push_back({.reads = {i}, .completes = {i}});
    if (tied && i + 1 == layers) all.back().reads = {0, i};
  }
  return all;
}

std::string lines(const GatherSchedule& schedule) {
  std::string text;
  for (std::size_t turn = 0; turn < schedule.size(); ++turn)
    text += fmt::format("  turn {}: {}\n", turn, fmt::join(schedule[turn], " "));
  return text;
}

struct Case {
  std::vector<LayerUnits> layers;
  std::vector<std::int64_t> counts;
  GatherOptions options;
  Turns turns = Turns::ForwardAndBackward;
};
void expect_schedule(const Case& c, const GatherSchedule& expected, const std::string& why) {
  const GatherSchedule found = gather_schedule(c.layers, c.counts, c.options, c.turns);
  EXPECT_EQ(found, expected) << why << "; whole in each turn, found\n"
                             << lines(found) << "expected\n"
                             << lines(expected);
}

const std::vector<std::int64_t> kTen = {10, 10, 10, 10};

// Three layers: turns 0, 1, 2 are forward, 3, 4, 5 backward of layers 2, 1, 0.
TEST(Prefetch, OneLayerAheadByHand) {
  const std::vector<std::int64_t> counts = {10, 20, 30};
  expect_schedule(
      {chain(3), counts, {.prefetch = 1}}, {{0, 1}, {1, 2}, {2}, {2, 1}, {1, 0}, {0}},
      "during a layer the next one's unit is on its way; the last layer's is used next by its own "
      "backward");
  expect_schedule({chain(3), counts, {.prefetch = 1}, Turns::Forward}, {{0, 1}, {1, 2}, {2}},
                  "nothing comes after the last layer");
}

TEST(Prefetch, OfNoneAndOfTwoLayers) {
  expect_schedule({chain(3), kTen, {.prefetch = 0}}, {{0}, {1}, {2}, {2}, {1}, {0}},
                  "nothing ahead");
  expect_schedule({chain(4), kTen, {.prefetch = 2}},
                  {{0, 1, 2}, {1, 2, 3}, {2, 3}, {3, 2}, {3, 2, 1}, {2, 1, 0}, {1, 0}, {0}},
                  "two layers ahead: behind layer 3 comes its own backward, then layer 2's");
}

TEST(Prefetch, LayersWithoutUnitsDoNotCount) {
  std::vector<LayerUnits> layers = chain(3);
  layers.insert(layers.begin() + 1, LayerUnits{});  // dropout
  expect_schedule({layers, kTen, {.prefetch = 1}, Turns::Forward}, {{0, 1}, {1}, {1, 2}, {2}},
                  "the layer after unit 0's has none: the next has");
}

TEST(Prefetch, EndsWhereLiveIsFull) {
  expect_schedule(
      {chain(3), {10, 20, 5}, {.prefetch = 2, .live = 25}, Turns::Forward}, {{0}, {1, 2}, {2}},
      "unit 1 does not fit beside unit 0; unit 2 would, but is used behind it and has to wait");
}

TEST(Prefetch, UnitsOfATiedTableAreThereOnce) {
  expect_schedule({chain(3, true), kTen, {.prefetch = 1}},
                  {{0, 1}, {1, 0, 2}, {0, 2}, {0, 2, 1}, {1, 0}, {0}},
                  "layer 2 reads units 0 and 2");
}

TEST(Prefetch, ReuseKeepsWhatComesBackSoon) {
  // Layer 1's backward comes after 10 elements of layer 2, layer 0's after 20.
  constexpr std::int64_t kAll = GatherOptions::kAll;
  expect_schedule({chain(3), kTen, {.prefetch = 0, .reuse = 10}},
                  {{0}, {1}, {2, 1}, {2, 1}, {1}, {0}},
                  "unit 1 is used again after 10 elements and stays; unit 0 after 20 does not");
  expect_schedule({chain(3), kTen, {.prefetch = 0, .reuse = 9}}, {{0}, {1}, {2}, {2}, {1}, {0}},
                  "9 are too few");
  expect_schedule({chain(3), kTen, {.prefetch = 0, .reuse = kAll}},
                  {{0}, {1, 0}, {2, 1, 0}, {2, 1, 0}, {1, 0}, {0}},
                  "all stay until their backward has run, and no longer");
  expect_schedule({chain(3), kTen, {.prefetch = 0, .reuse = kAll}, Turns::Forward}, {{0}, {1}, {2}},
                  "in evaluation none is used again");
  expect_schedule({chain(3), kTen, {.prefetch = 0, .live = 20, .reuse = kAll}},
                  {{0}, {1, 0}, {2, 1}, {2, 1}, {1}, {0}}, "live allows two at a time");
}

TEST(Prefetch, WhatPersistsIsInNoList) {
  expect_schedule({chain(3), {10, 5, 30}, {.prefetch = 1, .persist = 5}},
                  {{0, 2}, {2}, {2}, {2, 0}, {0}, {0}},
                  "unit 1 has no more than 5 elements, and its layer does not count");
}

// Whatever the sizes: a layer's units are there and come first, nothing is there twice or above
// live, and everything is gathered at least once.
TEST(Prefetch, KeepsItsPromises) {
  for (int i = 0; i < 40; ++i) {
    const auto number = [&](const char* what, std::int64_t low, std::int64_t high) {
      return drawn(fmt::format("schedule {} {}", i, what), low, high);
    };
    const auto layers = static_cast<std::size_t>(number("layers", 1, 9));
    const bool tied = layers > 1 && number("tied", 0, 1) == 1;
    std::vector<std::int64_t> counts;
    for (std::size_t u = 0; u < layers; ++u)
      counts.push_back(number(fmt::format("unit {}", u).c_str(), 1, 100));
    const GatherOptions options{.prefetch = static_cast<int>(number("prefetch", 0, 4)),
                                .live = number("live", 200, 400),
                                .reuse = number("reuse", 0, 300)};
    const GatherSchedule schedule =
        gather_schedule(chain(layers, tied), counts, options, Turns::ForwardAndBackward);
    ASSERT_EQ(schedule.size(), 2 * layers);
    SCOPED_TRACE(lines(schedule));
    std::set<std::size_t> seen;
    for (std::size_t turn = 0; turn < schedule.size(); ++turn) {
      const std::size_t layer = std::min(turn, 2 * layers - 1 - turn);
      const std::vector<std::size_t> reads = chain(layers, tied)[layer].reads;
      ASSERT_TRUE(std::equal(reads.begin(), reads.end(), schedule[turn].begin()))
          << "turn " << turn << " does not begin with its layer's units";
      std::int64_t sum = 0;
      for (const std::size_t unit : schedule[turn]) sum += counts[unit];
      EXPECT_LE(sum, options.live) << "turn " << turn;
      EXPECT_EQ(std::set(schedule[turn].begin(), schedule[turn].end()).size(),
                schedule[turn].size())
          << "a unit is there twice in turn " << turn;
      seen.insert(schedule[turn].begin(), schedule[turn].end());
    }
    EXPECT_EQ(seen.size(), layers);
  }
}

TEST(ScheduleGiven, OfALayerThatIsTooLarge) {
  const std::vector<std::int64_t> counts = {10, 20};
  const auto made = [&](const GatherOptions& options) {
    return [&, options] { gather_schedule(chain(2), counts, options, Turns::Forward); };
  };
  EXPECT_TRUE(
      error_says(made({.prefetch = 0, .live = 9}), {"layer 0 reads 10 elements", "live is 9"}));
  EXPECT_TRUE(error_says(made({.prefetch = -1}), {"prefetch is -1", "0 or more"}));
  EXPECT_TRUE(error_says(made({.live = -1}), {"live is -1"}));
  EXPECT_TRUE(error_says(made({.reuse = -2}), {"reuse is -2"}));
  EXPECT_TRUE(error_says(made({.persist = -3}), {"persist is -3"}));
}

}  // namespace
}  // namespace aisc
