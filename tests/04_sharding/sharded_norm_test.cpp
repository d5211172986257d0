// One norm of what lies on many ranks.
#include "04_sharding/sharded_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/comm/launch.h"
#include "tests/support/drawn.h"
#include "tests/support/late_comm.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

// What each of so many ranks gets for slices of these values.
template <class SlicesOf>
void expect_norm(int ranks, const SlicesOf& slices_of, double expected, const std::string& why) {
  launch(late(ranks), [&](const Rank& rank) {
    std::vector<Tensor> tensors;
    for (const std::vector<double>& values : slices_of(rank.world.rank()))
      tensors.push_back(from_doubles(values, {static_cast<std::int64_t>(values.size())}, DType::F64,
                                     rank.device));
    const std::vector<ConstView> views(tensors.begin(), tensors.end());
    const double found = norm_of_shards(rank.world, views);
    if (std::isfinite(expected))
      EXPECT_NEAR(found, expected, 1e-12 * (1 + expected))
          << ranks << " ranks, rank " << rank.world.rank() << ": " << why;
    else
      EXPECT_FALSE(std::isfinite(found)) << "rank " << rank.world.rank() << ": " << why;
  });
}

using Slices = std::vector<std::vector<double>>;

// Rank 0 has 1 and 2, rank 1 has 2 and 4: 1 + 4 + 4 + 16 is 25.
TEST(ShardedNorm, OfTwoRanksByHand) {
  expect_norm(
      2,
      [](int rank) {
        return rank == 0 ? Slices{{1, 2}} : Slices{{2}, {4}};
      },
      5, "squares add up, norms do not: sqrt(5) + sqrt(20) would be 6.7");
}

TEST(ShardedNorm, OfAnyRanks) {
  for (const int ranks : {1, 2, 3, 4, 7}) {
    const std::int64_t n = drawn("norm", 1, 50);
    double squares = 0;
    for (int r = 0; r < ranks; ++r)
      for (std::int64_t i = 0; i < n; ++i) squares += static_cast<double>((r + i) * (r + i));
    expect_norm(
        ranks,
        [&](int rank) {
          Slices slices(2);
          for (std::int64_t i = 0; i < n; ++i)
            slices[static_cast<std::size_t>(i % 2)].push_back(static_cast<double>(rank + i));
          return slices;
        },
        std::sqrt(squares), "the same on all ranks");
  }
}

TEST(ShardedNorm, OfARankWithoutSlices) {
  expect_norm(
      3,
      [](int rank) {
        return rank == 1 ? Slices{{3, 4}} : Slices{};
      },
      5, "ranks 0 and 2 have padding alone");
}

TEST(ShardedNorm, OneRanksNaNIsEverybodys) {
  expect_norm(
      3,
      [](int rank) {
        return Slices{{1, rank == 2 ? std::numeric_limits<double>::quiet_NaN() : 1}};
      },
      std::numeric_limits<double>::quiet_NaN(), "rank 2 has a NaN: all must skip the step");
  expect_norm(
      2, [](int rank) { return Slices{{rank == 0 ? std::numeric_limits<double>::infinity() : 1}}; },
      std::numeric_limits<double>::infinity(), "rank 0 has an infinite gradient");
}

TEST(ShardedNorm, SendsEightBytes) {
  launch({.ranks = 2, .bind = false}, [](const Rank& rank) {
    const Tensor x = random_tensor({1000}, DType::F32, rank.device, "x");
    const ConstView view = x;
    norm_of_shards(rank.world, {&view, 1});
    const CommStats stats = rank.world.stats();
    EXPECT_EQ(stats[CommOp::AllReduce].payload_bytes, 8);
    EXPECT_EQ(stats[CommOp::AllGather].calls, 0);
  });
}

}  // namespace
}  // namespace aisc
