// The three steps, plain: the same weights everywhere, and one gradient from those of all ranks.
#include "03_data_parallel/average.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <numeric>

#include "common/comm/launch.h"
#include "common/core/rng.h"
#include "tests/support/drawn.h"
#include "tests/support/error_says.h"
#include "tests/support/late_comm.h"
#include "tests/support/message_of.h"
#include "tests/support/numbers.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

using Rows = std::vector<std::vector<double>>;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

std::string where(std::size_t ranks, int rank, const char* what) {
  return std::to_string(ranks) + " ranks, rank " + std::to_string(rank) + ": " + what;
}

Rows drawn_rows(std::size_t ranks, std::int64_t count) {
  Rows rows(ranks);
  for (std::size_t r = 0; r < ranks; ++r) {
    const Philox random(test_seed(), "gradients", r);
    for (std::int64_t i = 0; i < count; ++i)
      rows[r].push_back(random.normal(static_cast<std::uint64_t>(i)));
  }
  return rows;
}

// sum over r of weights[r] * rows[r]; a weight of 0 leaves a row out.
std::vector<double> weighted(const Rows& rows, const std::vector<double>& weights) {
  std::vector<double> sum(rows[0].size());
  for (std::size_t r = 0; r < rows.size(); ++r)
    for (std::size_t i = 0; i < sum.size() && weights[r] != 0; ++i)
      sum[i] += weights[r] * rows[r][i];
  return sum;
}
std::vector<double> all(std::size_t ranks, double weight) {
  return std::vector<double>(ranks, weight);
}

void expect_average(const Rows& rows) {
  const std::size_t n = rows.size();
  const auto mean = weighted(rows, all(n, 1.0 / static_cast<double>(n)));
  std::vector<KnownMistake> mistakes;
  if (n > 1)
    mistakes = {{"nobody divided by the number of ranks, or that came before wait()",
                 weighted(rows, all(n, 1))},
                {"they were divided by the number of ranks twice",
                 weighted(rows, all(n, 1.0 / static_cast<double>(n * n)))}};
  launch(late(static_cast<int>(n)), [&](const Rank& rank) {
    const int r = rank.world.rank();
    const std::vector<double>& own = rows[static_cast<std::size_t>(r)];
    const Tensor x =
        from_doubles(own, {static_cast<std::int64_t>(own.size())}, DType::F64, rank.device);
    average_gradients(rank.world, x);
    std::vector<KnownMistake> known = mistakes;
    if (n > 1) known.push_back({"the ranks did not communicate", own});
    EXPECT_TRUE(numbers_are(where(n, r, "gradients"), x, mean, known));
  });
}

TEST(Average, OfTwoRanksByHand) { expect_average({{2, 4}, {6, 8}}); }

TEST(Average, OfAnyRanksAndSizes) {
  for (const std::size_t ranks : {1, 2, 3, 4, 7})
    for (const std::int64_t count : {std::int64_t{1}, drawn("gradients of Average", 2, 300)})
      expect_average(drawn_rows(ranks, count));
}

TEST(Average, SendsTheGradientsOnce) {
  launch({.ranks = 3, .bind = false}, [](const Rank& rank) {
    const Tensor x = random_tensor({100}, DType::F32, rank.device, "x");
    average_gradients(rank.world, x);
    EXPECT_EQ(rank.world.stats()[CommOp::AllReduce].calls, 1);
    EXPECT_EQ(rank.world.stats()[CommOp::AllReduce].payload_bytes, 400);
  });
}

void expect_by_tokens(const Rows& rows, const std::vector<std::int64_t>& tokens) {
  const std::size_t n = rows.size();
  const auto total = static_cast<double>(std::accumulate(tokens.begin(), tokens.end(), 0LL));
  std::vector<double> share, equal = all(n, 1.0 / static_cast<double>(n)), whole;
  for (const std::int64_t t : tokens) {
    share.push_back(static_cast<double>(t) / total);
    whole.push_back(static_cast<double>(t));
  }
  const std::vector<KnownMistake> mistakes = {
      {"a rank without tokens counted: 0 times NaN is NaN", all(rows[0].size(), kNaN)},
      {"all ranks counted alike, however many tokens they have", weighted(rows, equal)},
      {"they were weighted by tokens and never divided by all of them", weighted(rows, whole)}};
  launch(late(static_cast<int>(n)), [&](const Rank& rank) {
    const auto r = static_cast<std::size_t>(rank.world.rank());
    const Tensor x =
        from_doubles(rows[r], {static_cast<std::int64_t>(rows[r].size())}, DType::F64, rank.device);
    average_by_tokens(rank.world, x, tokens[r]);
    EXPECT_TRUE(
        numbers_are(where(n, rank.world.rank(), "gradients"), x, weighted(rows, share), mistakes));
  });
}

TEST(ByTokens, OfTwoRanksByHand) { expect_by_tokens({{2, 4}, {6, 8}}, {3, 1}); }

TEST(ByTokens, OfAnyRanksAndShares) {
  for (const std::size_t ranks : {1, 2, 3, 7}) {
    std::vector<std::int64_t> tokens;
    for (std::size_t r = 0; r < ranks; ++r)
      tokens.push_back(drawn("tokens of rank " + std::to_string(r), 1, 50));
    expect_by_tokens(drawn_rows(ranks, drawn("gradients of ByTokens", 1, 100)), tokens);
  }
}

TEST(ByTokens, ARankWithoutTokensDoesNotCount) {
  expect_by_tokens({{2, 4}, {kNaN, kNaN}, {6, 8}}, {1, 0, 1});
}

TEST(ByTokens, ThereMustBeSome) {
  const auto world = make_self_communicator();
  CpuDevice device;
  const Tensor x = random_tensor({3}, DType::F64, device, "x");
  EXPECT_THAT(message_of([&] { average_by_tokens(*world, x, 0); }),
              ::testing::HasSubstr("no rank has a token"));
}

TEST(AverageGiven, TokensAreNotNegative) {
  const auto world = make_self_communicator();
  CpuDevice device;
  const Tensor x = random_tensor({3}, DType::F64, device, "x");
  EXPECT_TRUE(error_says([&] { average_by_tokens(*world, x, -1); }, {"-1 tokens"}));
}

TEST(AverageGiven, WeightsAreRankZerosAfterABroadcast) {
  launch(late(3), [](const Rank& rank) {
    const std::string own = "weights of rank " + std::to_string(rank.world.rank());
    const Tensor x = random_tensor({50}, DType::F32, rank.device, own);
    broadcast_weights(rank.world, x);
    require_equal_weights(rank.world, x);
    EXPECT_TRUE(same_bits(x, random_tensor({50}, DType::F32, rank.device, "weights of rank 0")));
  });
}

TEST(AverageGiven, TheFirstRankWithOtherWeightsIsNamed) {
  for (const int other : {1, 2})
    EXPECT_TRUE(error_says(
        [&] {
          launch({.ranks = 3, .bind = false}, [&](const Rank& rank) {
            const Tensor x = random_tensor({50}, DType::F32, rank.device, "weights");
            if (rank.world.rank() >= other) x.values<float>()[49] += 1e-6F;
            require_equal_weights(rank.world, x);
          });
        },
        {"rank " + std::to_string(other) + " has other weights than rank 0"}));
}

TEST(AverageGiven, RootMeanSquare) {
  launch({.ranks = 2, .bind = false}, [](const Rank& rank) {
    EXPECT_DOUBLE_EQ(root_mean_square(rank.world, rank.world.rank() == 0 ? 1 : 7), 5);
  });
}

}  // namespace
}  // namespace aisc
