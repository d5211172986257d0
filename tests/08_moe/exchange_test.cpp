// Rows between the ranks of experts.
#include "08_moe/exchange.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/comm/launch.h"
#include "tests/support/late_comm.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

// Row i of rank r for expert e is 100 r + 10 e + i.
Tensor rows_for(const std::vector<std::int64_t>& counts, int rank, Device& device) {
  std::vector<double> rows;
  for (std::size_t e = 0; e < counts.size(); ++e)
    for (std::int64_t i = 0; i < counts[e]; ++i)
      rows.push_back(100.0 * rank + 10.0 * static_cast<double>(e) + static_cast<double>(i));
  return from_doubles(rows, {std::ssize(rows), 1}, DType::F64, device);
}

// Rank 0 sends 1 2 0 3 to experts 0 .. 3, rank 1 sends 0 1 2 0; each has two experts.
const std::vector<std::int64_t> kCounts[] = {{1, 2, 0, 3}, {0, 1, 2, 0}};

TEST(Exchange, RanksTellHowMuchTheySend) {
  launch(late(2), [](const Rank& rank) {
    const int r = rank.world.rank();
    const auto ranks = expert_ranks(rank.world);
    const Route route = route_of(*ranks, kCounts[r]);
    const std::string where = fmt::format(
        "rank 0 sends 1 2 | 0 3 rows, rank 1 sends 0 1 | 2 0, to the experts of ranks 0 | 1; rank "
        "{}: ",
        r);
    EXPECT_THAT(route.sent, ElementsAreArray(r == 0 ? std::vector<std::int64_t>{3, 3}
                                                    : std::vector<std::int64_t>{1, 2}))
        << where << "rows that it sends to each rank";
    EXPECT_THAT(route.received, ElementsAreArray(r == 0 ? std::vector<std::int64_t>{3, 1}
                                                        : std::vector<std::int64_t>{3, 2}))
        << where << "rows that it gets from each rank";
    EXPECT_THAT(route.arriving, ElementsAreArray(r == 0 ? std::vector<std::int64_t>{1, 2, 0, 1}
                                                        : std::vector<std::int64_t>{0, 3, 2, 0}))
        << where << "rows that it gets, by the rank they come from, then by its experts";
    EXPECT_THAT(route.counts, ElementsAreArray(r == 0 ? std::vector<std::int64_t>{1, 3}
                                                      : std::vector<std::int64_t>{2, 3}))
        << where << "rows of each of its experts";
    EXPECT_EQ(route.arrived(), r == 0 ? 4 : 5);
  });
}

TEST(Exchange, RowsGoToTheirExperts) {
  launch(late(2), [](const Rank& rank) {
    const int r = rank.world.rank();
    const auto ranks = expert_ranks(rank.world);
    const Route route = route_of(*ranks, kCounts[r]);
    Travelling there = to_experts(*ranks, rows_for(kCounts[r], r, rank.device), route);
    there.work.wait();
    EXPECT_THAT(to_doubles(by_expert(std::move(there.rows), route)),
                ElementsAreArray(r == 0 ? std::vector<double>{0, 10, 11, 110}
                                        : std::vector<double>{120, 121, 30, 31, 32}));
  });
}

TEST(Exchange, AndComeHome) {
  launch(late(4), [](const Rank& rank) {
    const int r = rank.world.rank();
    const auto ranks = expert_ranks(rank.world);
    // Expert e of 8 gets (e + r) % 3 rows.
    std::vector<std::int64_t> counts;
    for (int e = 0; e < 8; ++e) counts.push_back((e + r) % 3);
    const Route route = route_of(*ranks, counts);
    const Tensor x = rows_for(counts, r, rank.device);
    Travelling there = to_experts(*ranks, x, route);
    there.work.wait();
    Travelling back =
        to_tokens(*ranks, by_rank(by_expert(std::move(there.rows), route), route), route);
    back.work.wait();
    EXPECT_EQ(to_doubles(back.rows), to_doubles(x));
  });
}

// A rank without rows, and one that nobody sends any.
TEST(Exchange, EveryRankTakesPart) {
  launch(late(3), [](const Rank& rank) {
    const int r = rank.world.rank();
    const auto ranks = expert_ranks(rank.world);
    const std::vector<std::int64_t> counts =
        r == 1 ? std::vector<std::int64_t>{0, 0, 0} : std::vector<std::int64_t>{2, 1, 0};
    const Route route = route_of(*ranks, counts);
    Travelling there = to_experts(*ranks, rows_for(counts, r, rank.device), route);
    there.work.wait();
    EXPECT_EQ(there.rows.shape()[0], r == 0 ? 4 : r == 1 ? 2 : 0);
    Travelling back = to_tokens(*ranks, there.rows, route);
    back.work.wait();
    EXPECT_EQ(back.rows.shape()[0], r == 1 ? 0 : 3);
  });
}

// What stays is not sent.
TEST(ExchangeGiven, SendsTheRowsOfOtherRanks) {
  launch({.ranks = 2, .bind = false}, [](const Rank& rank) {
    rank.world.use_plans(default_plans());
    const int r = rank.world.rank();
    const auto ranks = expert_ranks(rank.world);
    const Route route = route_of(*ranks, kCounts[r]);
    const std::int64_t before = rank.world.stats().sent().wire_bytes;
    EXPECT_EQ(before, 2 * 8) << "counts of the other's experts";
    to_experts(*ranks, rows_for(kCounts[r], r, rank.device), route).work.wait();
    EXPECT_EQ(rank.world.stats().sent().wire_bytes - before, 8 * (r == 0 ? 3 : 1));
  });
}

// Four ranks in nodes of two: what goes to the other node passes by the rank of its number there.
TEST(ExchangeGiven, InTwoHopsRowsGoTheSameWayHome) {
  launch(late(4), [](const Rank& rank) {
    rank.world.use_plans(default_plans());
    const int r = rank.world.rank();
    const auto direct = expert_ranks(rank.world), hops = expert_ranks(rank.world, 2);
    std::vector<std::int64_t> counts;
    for (int e = 0; e < 8; ++e) counts.push_back((e + r) % 3);
    const Route one = route_of(*direct, counts), two = route_of(*hops, counts);
    const Tensor x = rows_for(counts, r, rank.device);
    Travelling arrived = to_experts(*direct, x, one), by_hops = to_experts(*hops, x, two);
    arrived.work.wait();
    by_hops.work.wait();
    EXPECT_EQ(to_doubles(arrived.rows), to_doubles(by_hops.rows));
    Travelling back = to_tokens(*hops, by_hops.rows, two);
    back.work.wait();
    EXPECT_EQ(to_doubles(back.rows), to_doubles(x));
    EXPECT_EQ(hops->rail->stats().sent().messages, 2) << "there and back: one other node";
  });
}

}  // namespace
}  // namespace aisc
