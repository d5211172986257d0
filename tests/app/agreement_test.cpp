// Where one rank fails all say so, and nobody waits for it.
#include "app/agreement.h"

#include <gtest/gtest.h>

#include <mutex>
#include <stdexcept>

#include "common/core/error.h"
#include "tests/app/dealt_weights.h"

namespace aisc {
namespace {

TEST(Agreement, IsSilentWhereAllSucceed) {
  std::mutex mutex;
  int calls = 0;
  EXPECT_TRUE(all_say(messages(3,
                               [&](const Rank& rank) {
                                 on_all_ranks(rank.world, [&] {
                                   const std::lock_guard lock(mutex);
                                   ++calls;
                                 });
                               }),
                      {}));
  EXPECT_EQ(calls, 3);
}

TEST(Agreement, AllThrowWhatTheLowestThatFailedDid) {
  const auto said = messages(4, [](const Rank& rank) {
    on_all_ranks(rank.world, [&] {
      if (rank.world.rank() == 3) fail("the third");
      if (rank.world.rank() == 1) throw std::runtime_error("the disk is full");  // of any kind
    });
  });
  for (const std::string& message : said) EXPECT_EQ(message, "on rank 1: the disk is full");
}

TEST(Agreement, NothingIsTriedAfterAFailure) {
  int tried = 0;
  const auto said = messages(2, [&](const Rank& rank) {
    Agreement agreement(rank.world);
    agreement.attempt([&] {
      if (rank.world.rank() == 1) fail("first");
    });
    agreement.attempt([&] {
      if (rank.world.rank() == 1) ++tried;
    });
    rank.world.barrier();  // it still takes part
    agreement.conclude();
  });
  EXPECT_TRUE(all_say(said, {"on rank 1: first"}));
  EXPECT_EQ(tried, 0);
}

TEST(Agreement, ASingleRankThrowsAsItIs) {
  TestWorld world;
  EXPECT_EQ(message_of([&] { on_all_ranks(world.rank.world, [] { fail("just this"); }); }),
            "just this");
  EXPECT_THROW(on_all_ranks(world.rank.world, [] { throw std::out_of_range("x"); }),
               std::out_of_range);
}

TEST(Agreement, AnExerciseThatIsNotSolvedSaysSo) {
  TestWorld world;
  EXPECT_THROW(on_all_ranks(world.rank.world, [] { throw NotImplemented("LAB"); }), NotImplemented);
}

}  // namespace
}  // namespace aisc
