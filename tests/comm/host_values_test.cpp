#include "common/comm/host_values.h"

#include <gtest/gtest.h>

#include "common/comm/launch.h"

namespace aisc {
namespace {

using Texts = std::vector<std::string>;

TEST(HostValues, OfAllRanks) {
  launch({.ranks = 3, .bind = false}, [](Rank rank) {
    Communicator& world = rank.world;
    const int self = world.rank();
    EXPECT_EQ(sum_of_all(world, 0.5 + self), 4.5);
    EXPECT_EQ(sum_of_all(world, std::int64_t{1} << (60 - self), ReduceOp::Max), 1LL << 60);
    EXPECT_EQ(sum_of_all(world, -1.5 * self, ReduceOp::Min), -3);
    double reals[] = {1, 10.0 * self};
    sum_of_all(world, reals);
    EXPECT_EQ(reals[0], 3);
    EXPECT_EQ(reals[1], 30);
    std::vector<std::int64_t> counts{self, 7};
    EXPECT_EQ(all_numbers(world, counts), (std::vector<std::int64_t>{0, 7, 1, 7, 2, 7}));
    sum_of_all(world, counts);
    EXPECT_EQ(counts, (std::vector<std::int64_t>{3, 21}));
  });
}

TEST(HostValues, TextsOfAnyLength) {
  launch({.ranks = 3, .bind = false}, [](Rank rank) {
    Communicator& world = rank.world;
    const int self = world.rank();
    const std::string mine(static_cast<std::size_t>(5 * self), static_cast<char>('a' + self));
    const Texts all{"", "bbbbb", "cccccccccc"};
    EXPECT_EQ(all_texts(world, mine), all);
    EXPECT_EQ(all_texts(world, ""), Texts(3));
    EXPECT_EQ(gather_texts(world, mine), self == 0 ? all : Texts());
    EXPECT_EQ(gather_texts(world, ""), self == 0 ? Texts(3) : Texts());
    EXPECT_EQ(broadcast_text(world, mine, 2), "cccccccccc");
    EXPECT_EQ(broadcast_text(world, mine, 0), "");
  });
}

}  // namespace
}  // namespace aisc
