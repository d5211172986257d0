// What is on the device when: by hand.
#include "02_cpu_offload/residency.h"

#include <gtest/gtest.h>

namespace aisc {
namespace {

using Units = std::vector<std::size_t>;
constexpr LayerTurn::Direction kForward = LayerTurn::Forward, kBackward = LayerTurn::Backward;

// Three layers with a unit each; the last reads the first one's, too: a tied head.
const std::vector<LayerUnits> kLayers{{.reads = {0}, .completes = {0}},
                                      {.reads = {1}, .completes = {1}},
                                      {.reads = {2, 0}, .completes = {2}}};

TEST(ComeAndGo, GoesThroughTheLayersAndBack) {
  std::vector<LayerTurn> turns{{0, kForward}};
  for (auto next = next_turn(turns[0], 3, true); next && turns.size() < 9;
       next = next_turn(*next, 3, true))
    turns.push_back(*next);
  EXPECT_EQ(turns, (std::vector<LayerTurn>{{0, kForward},
                                           {1, kForward},
                                           {2, kForward},
                                           {2, kBackward},
                                           {1, kBackward},
                                           {0, kBackward}}));
}

TEST(ComeAndGo, EndsWithTheLastLayerWhereNothingIsTrained) {
  EXPECT_EQ(next_turn({1, kForward}, 3, false), (LayerTurn{2, kForward}));
  EXPECT_FALSE(next_turn({2, kForward}, 3, false));
}

TEST(ComeAndGo, ComeBeforeTheyAreNeededAndGoBehind) {
  std::vector<bool> here(3);
  const auto moves = [&](const LayerTurn& turn) {
    return moves_before(turn, kLayers, here, true, {});
  };
  Moves m = moves({0, kForward});
  EXPECT_EQ(m.evict, Units{});
  EXPECT_EQ(m.fetch, (Units{0, 1})) << "its own first";
  EXPECT_EQ(m.needed, Units{0});
  here = {true, true, false};
  m = moves({1, kForward});
  EXPECT_EQ(m.evict, Units{}) << "unit 0 is the next layer's, too";
  EXPECT_EQ(m.fetch, Units{2});
  here = {true, true, true};
  m = moves({2, kForward});
  EXPECT_EQ(m.evict, Units{1});
  EXPECT_EQ(m.fetch, Units{}) << "what comes next is the same layer";
  here = {true, false, true};
  m = moves({2, kBackward});
  EXPECT_EQ(m.fetch, Units{1});
  here = {true, true, true};
  m = moves({1, kBackward});
  EXPECT_EQ(m.evict, Units{2});
  EXPECT_EQ(m.fetch, Units{}) << "unit 0 is here already";
  here = {true, true, false};
  m = moves({0, kBackward});
  EXPECT_EQ(m.evict, Units{1});
  EXPECT_EQ(m.fetch, Units{});
}

TEST(ComeAndGo, WithoutPrefetchOnlyTheLayersOwn) {
  const std::vector<bool> here{true, true, false};
  const Moves m = moves_before({2, kForward}, kLayers, here, true, {.prefetch = false});
  EXPECT_EQ(m.evict, Units{1});
  EXPECT_EQ(m.fetch, Units{2});
  EXPECT_EQ(m.needed, (Units{2, 0}));
}

}  // namespace
}  // namespace aisc
