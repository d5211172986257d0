// What happens to each token on the rank that has it.
#include "07_sequence_parallel/token_share.h"

#include <gtest/gtest.h>

#include <string>

#include "07_sequence_parallel/token_linear.h"
#include "common/nn/layer_norm.h"
#include "tests/06_tensor_parallel/split_layers.h"
#include "tests/support/compare.h"

namespace aisc {
namespace {

TEST(SumOverTokens, IsAskedForByWhatSeesAPartOfThem) {
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    const auto norm = summed_over_tokens(std::make_unique<LayerNorm>(rank, "norm", 4));
    std::string asked, not_asked;
    for (const Parameter* p : norm->parameters())
      (p->sync == Sync::DataAndTensor ? asked : not_asked) += " " + p->name;
    EXPECT_TRUE(not_asked.empty()) << "the gradients of a norm have to be summed over the ranks of "
                                      "tp, too, each of which sees "
                                   << "a part of the tokens; the sum is asked for of"
                                   << (asked.empty() ? " none" : asked) << ", not of" << not_asked;
    ScatteredRowLinear row(rank, tp, "row", 4, 4);
    EXPECT_TRUE(row.parameters()[0]->sync == Sync::Data)
        << "each rank has its own rows of the weight";
    EXPECT_TRUE(row.parameters()[1]->sync == Sync::DataAndTensor)
        << "the bias is added to own tokens";
    GatheredColumnLinear column(rank, tp, "column", 4, 4);
    for (const Parameter* p : column.parameters())
      EXPECT_TRUE(p->sync == Sync::Data) << p->name << " is each rank's own";
    TokenSharePositions positions(rank, tp, 8, 4);
    EXPECT_TRUE(positions.parameters()[0]->sync == Sync::DataAndTensor)
        << "each rank has the gradients of its own tokens' positions";
  });
}

// All ranks' rows side by side are those of one rank, whatever runs the sequence has.
TEST(TokenShareDropout, DropsWhatOneRankDrops) {
  for (const int t : {1, 2, 3})
    for (const ops::TokenRuns& runs :
         {ops::TokenRuns{}, ops::TokenRuns{.first = 7}, ops::TokenRuns{5, 4, 20}})
      split::on_groups(t, [&](const Rank& rank, Communicator& tp) {
        const std::int64_t B = 3, T = 12, C = 5, rows = B * T / t;
        const Pass pass{.step = 3, .first_sample = 2, .tokens = runs};
        const Tensor all = random_tensor({B, T, C}, DType::F64, rank.device, "x");
        Tensor own({B, T / t, C}, DType::F64, rank.device);
        rank.device.copy(own, all.view().flat(tp.rank() * rows * C, rows * C));
        Saved saved;
        const Tensor whole = Dropout(rank, "d", 0.3, 9).forward(all.clone(), saved, pass);
        const Tensor mine =
            TokenShareDropout(rank, tp, "d", 0.3, 9).forward(std::move(own), saved, pass);
        EXPECT_EQ(to_doubles(mine), to_doubles(whole.view().flat(tp.rank() * rows * C, rows * C)))
            << t << " ranks";
      });
}

}  // namespace
}  // namespace aisc
