// The other splits compute the same; and the one that would not.
#include "06_tensor_parallel/more/naive_splits.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "06_tensor_parallel/parallel_block.h"
#include "tests/06_tensor_parallel/split_layers.h"
#include "tests/support/message_of.h"
#include "tests/support/numbers.h"

namespace aisc {
namespace {

GptConfig config_of_naive() {
  return {.layers = 2, .heads = 3, .width = 12, .dropout = 0.2, .seed = 5, .dtype = DType::F64};
}

void expect_naive_is_serial(const std::function<GptParts(Communicator&)>& parts_over,
                            GptParts::Make GptParts::*part) {
  const auto case_of = [&](const std::function<GptParts(Communicator&)>& over) {
    return split::LayerCase{.make =
                                [over, part](const Rank& rank, Communicator& tp) {
                                  const GptParts parts = over(tp);
                                  return (parts.*part)({rank, "part", config_of_naive(), parts});
                                },
                            .input = {2, 5, 12},
                            .output = {2, 5, 12}};
  };
  const RunRecord one = split::run_layer(case_of([](Communicator&) { return gpt2_parts(); }), 1, 1);
  for (const int t : {1, 2, 3, 4})
    EXPECT_TRUE(same_run(one, split::run_layer(case_of(parts_over), t), kSameRunF64))
        << t << " ranks";
}

GptParts rows_first_parts(Communicator& tp) {
  GptParts parts = gpt2_parts();
  parts.mlp = [&tp](const GptParts::Wanted& w) { return rows_first_mlp(w, tp); };
  return parts;
}

TEST(NaiveSplits, RowsFirstIsTheSerialMlp) {
  expect_naive_is_serial(rows_first_parts, &GptParts::mlp);
}

// Heads need not divide: 3 of them on 2 and 4 ranks.
TEST(NaiveSplits, StraightIsTheSerialBlock) {
  expect_naive_is_serial(straight_parts, &GptParts::block);
}

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}

// Shares 1 and -1 of a hidden value 0: GELU(0) is 0, GELU(1) + GELU(-1) is 0.841 - 0.159 = 0.682.
TEST(NaiveSplits, GeluOfTheSumIsNotTheSumOfGelus) {
  split::on_groups(2, [](const Rank& rank, Communicator& tp) {
    const bool first = tp.rank() == 0;
    const auto shares = [&] {
      return from_doubles(first ? std::vector{1.0, 2.0} : std::vector{-1.0, 1.0}, {2}, DType::F64,
                          rank.device);
    };
    const Tensor right = gelu_of_sum(tp, shares()), wrong = sum_of_gelus(tp, shares());
    EXPECT_TRUE(numbers_are("GELU of the sum", right, {0, gelu(3)}));
    EXPECT_TRUE(numbers_are("sum of GELUs", wrong, {gelu(1) + gelu(-1), gelu(2) + gelu(1)}));
    EXPECT_NEAR(to_doubles(wrong)[0], 0.682, 5e-4);
    EXPECT_NEAR(to_doubles(right)[1], 2.996, 5e-4);
    EXPECT_NEAR(to_doubles(wrong)[1], 2.796, 5e-4);
    EXPECT_EQ(tp.stats()[CommOp::AllReduce].calls, 2) << "both sum once";
  });
}

TEST(NaiveSplits, SayWhatDoesNotDivide) {
  const GptConfig config{.layers = 1, .heads = 1, .width = 9};
  split::on_groups(
      2,
      [&](const Rank& rank, Communicator& tp) {
        const GptParts straight = straight_parts(tp);
        const auto says = [](const char* part) {
          return fmt::format("{}: 9 columns over 2 ranks of tp: expected a multiple of 2", part);
        };
        EXPECT_EQ(message_of([&] {
                    rows_first_mlp({rank, "mlp", config, straight}, tp);
                  }),
                  says("mlp"));
        EXPECT_EQ(message_of([&] { straight.mlp({rank, "mlp", config, straight}); }), says("mlp"));
        EXPECT_EQ(message_of([&] {
                    straight.attention({rank, "attention", config, straight});
                  }),
                  says("attention"));
      },
      1);
}

}  // namespace
}  // namespace aisc
