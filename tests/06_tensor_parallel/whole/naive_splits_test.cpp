// The other splits compute the same.
#include "06_tensor_parallel/more/naive_splits.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "06_tensor_parallel/parallel_block.h"
#include "tests/06_tensor_parallel/split_layers.h"
#include "tests/support/message_of.h"

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
  const split::LayerCase whole = case_of([](Communicator&) { return gpt2_parts(); });
  split::expect_serial(whole, case_of(parts_over), {1, 2, 3, 4});
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

TEST(NaiveSplits, SayWhatDoesNotDivide) {
  const GptConfig config{.layers = 1, .heads = 1, .width = 9};
  split::on_groups(
      2,
      [&](const Rank& rank, Communicator& tp) {
        const GptParts straight = straight_parts(tp);
        const auto says = [](const char* part) {
          return fmt::format("{}: 9 columns over 2 ranks of tp: expected a multiple of 2", part);
        };
        const GptParts::Wanted mlp{rank, "mlp", config, straight};
        EXPECT_EQ(message_of([&] { rows_first_mlp(mlp, tp); }), says("mlp"));
        EXPECT_EQ(message_of([&] { straight.mlp(mlp); }), says("mlp"));
        const GptParts::Wanted attention{rank, "attention", config, straight};
        EXPECT_EQ(message_of([&] { straight.attention(attention); }), says("attention"));
      },
      1);
}

}  // namespace
}  // namespace aisc
