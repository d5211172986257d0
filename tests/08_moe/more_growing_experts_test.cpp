// What grows with experts: weights of published models, bytes of a rank, FLOPs of a token.
#include "08_moe/more/growing_experts.h"

#include <gtest/gtest.h>

namespace aisc {
namespace {

TEST(GrowingExperts, GshardsWeightsAreItsExperts) {
  for (const GshardModel& model : gshard_models()) {
    const ExpertWeights weights = expert_weights(model);
    EXPECT_NEAR(static_cast<double>(weights.all) / model.weights, 1, 0.05) << model.name;
    EXPECT_EQ(weights.all, model.experts * weights.of_a_core) << model.name;
  }
}

// Twice the experts on twice the ranks: but for the router's row of each expert in two blocks, a
// gradient of it and two moments, every rank has what it had.
TEST(GrowingExperts, ARankHasAsManyBytesOnMoreRanks) {
  const RankBytes one = bytes_of_a_rank(1, 1, 2);
  for (const int ranks : {2, 4, 8}) {
    const RankBytes many = bytes_of_a_rank(ranks, ranks, 2 * ranks);
    const std::int64_t rows = 2 * 256 * 4 * (2 * ranks - 2);
    EXPECT_EQ(many.weights - one.weights, rows) << ranks;
    EXPECT_EQ(many.gradients - one.gradients, rows) << ranks;
    EXPECT_EQ(many.optimizer - one.optimizer, 2 * rows) << ranks;
    EXPECT_LT(static_cast<double>(many.peak), 1.05 * static_cast<double>(one.peak)) << ranks;
    EXPECT_GT(bytes_of_a_rank(ranks, 1, 2 * ranks).weights, many.weights * 5 / 4) << ranks;
  }
}

TEST(GrowingExperts, ATokenMeetsAsManyOfThem) {
  constexpr std::int64_t C = 64;
  for (const char* router : {"switch", "top2"}) {
    const int chosen = router[0] == 's' ? 1 : 2;
    double others[4];
    for (int i = 0; i < 4; ++i) {
      const std::int64_t E = 2 << i;
      const TokenFlops flops = flops_of_a_token(router, E, C);
      EXPECT_EQ(flops.products, static_cast<double>(48 * C * C * chosen + 6 * C * E))
          << router << ", " << E;
      others[i] = flops.others;
    }
    // Linear in E: so much more for each expert.
    EXPECT_EQ(others[2] - others[1], 2 * (others[1] - others[0])) << router;
    EXPECT_EQ(others[3] - others[2], 4 * (others[1] - others[0])) << router;
    EXPECT_GT(others[1], others[0]) << router;
  }
}

}  // namespace
}  // namespace aisc
