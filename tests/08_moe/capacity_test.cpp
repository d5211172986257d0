// Who finds room.
#include "08_moe/capacity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "common/core/rng.h"

namespace aisc {
namespace {

using ::testing::ElementsAre;

std::vector<std::uint8_t> kept(const std::vector<std::int32_t>& experts, std::int64_t chosen,
                               std::int64_t capacity) {
  return within_capacity(experts, chosen, 3, capacity);
}

TEST(Capacity, TokensTakePlacesInTheirOrder) {
  EXPECT_THAT(kept({0, 1, 0, 0, 2, 1}, 1, 2), ElementsAre(1, 1, 1, 0, 1, 1))
      << "tokens go to experts 0 1 0 0 2 1, each with two places: who is kept";
  EXPECT_THAT(kept({0, 0, 0}, 1, 1), ElementsAre(1, 0, 0));
}

// The last token's first choice comes before the first token's second.
TEST(Capacity, FirstChoicesComeBeforeSecondOnes) {
  EXPECT_THAT(kept({0, 1, 2, 0, 1, 2}, 2, 1), ElementsAre(1, 0, 1, 0, 1, 0))
      << "first and second choices 0 1, 2 0, 1 2, a place an expert: first choices come first";
  EXPECT_THAT(kept({0, 1, 0, 1, 0, 1}, 2, 2), ElementsAre(1, 1, 1, 1, 0, 0));
}

TEST(Capacity, WhatWasNotChosenTakesNoPlace) {
  EXPECT_THAT(kept({-1, 0, 0, -1}, 2, 1), ElementsAre(0, 0, 1, 0));
  EXPECT_THAT(kept({}, 1, 1), ElementsAre());
}

TEST(CapacityGiven, IsTheEvenShareTimesAFactor) {
  EXPECT_EQ(expert_capacity(1.25, 64, 1, 8), 10);
  EXPECT_EQ(expert_capacity(1.0, 10, 1, 3), 4);  // rounded up
  EXPECT_EQ(expert_capacity(1.0, 64, 2, 8), 16);
  EXPECT_EQ(expert_capacity(0.01, 64, 1, 8), 1);
  EXPECT_EQ(expert_capacity(100, 64, 1, 8), 64);
  EXPECT_EQ(expert_capacity(0, 64, 1, 8), 64);
}

}  // namespace
}  // namespace aisc
