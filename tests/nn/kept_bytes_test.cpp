// Recomputation within a budget: which forwards keep what they make.
#include "common/nn/kept_bytes.h"

#include <gtest/gtest.h>

namespace aisc {
namespace {

TEST(RecomputationBudget, NothingWithoutABudget) {
  EXPECT_FALSE(KeptBytes(0).has_room());
  EXPECT_FALSE(KeptBytes(-1).has_room());
}

// 100 bytes for micro-batches of 40: two of them.
TEST(RecomputationBudget, AsManyAsFitByHand) {
  KeptBytes kept(100);
  EXPECT_TRUE(kept.has_room()) << "how much a micro-batch keeps, the first one tells";
  EXPECT_TRUE(kept.keep(40));
  EXPECT_TRUE(kept.has_room());
  EXPECT_TRUE(kept.keep(40));
  EXPECT_FALSE(kept.has_room()) << "20 bytes are left";
  kept.give_back(40);
  EXPECT_TRUE(kept.has_room());
  EXPECT_TRUE(kept.keep(60)) << "exactly what is left";
  EXPECT_FALSE(kept.has_room());
}

TEST(RecomputationBudget, TheFirstMayNotFit) {
  KeptBytes kept(30);
  EXPECT_TRUE(kept.has_room());
  EXPECT_FALSE(kept.keep(40));
  EXPECT_FALSE(kept.has_room()) << "the next one is as large";
  EXPECT_TRUE(kept.keep(30)) << "what did not fit takes nothing of the budget";
}

// Two chunks of different sizes: room is for the larger one.
TEST(RecomputationBudget, RoomIsForTheLargest) {
  KeptBytes kept(100);
  EXPECT_TRUE(kept.keep(60));
  kept.give_back(60);
  EXPECT_TRUE(kept.keep(41));
  EXPECT_FALSE(kept.has_room()) << "59 bytes are left, and one had 60";
}

}  // namespace
}  // namespace aisc
