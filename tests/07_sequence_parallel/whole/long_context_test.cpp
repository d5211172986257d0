// A context that is divided: what a rank holds of 32,768 tokens, and from which block on a ring
// hides its messages.
#include "07_sequence_parallel/more/long_context.h"

#include <gtest/gtest.h>

#include "07_sequence_parallel/context_parallel.h"
#include "07_sequence_parallel/ring_attention.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

// A rank's activations are, to the byte, those of one rank with T/cp tokens; and ranks that share
// the tokens learn as one.
TEST(LongContext, TrainsInMemoryThatFallsWithTheRanks) {
  constexpr std::int64_t kTokens = 32768, kWidth = 16;
  const auto run = [](std::int64_t tokens, int cp, int steps) {
    return train_long(tokens, kWidth, cp, steps, context_parallel(ContextForm::Zigzag));
  };
  const LongRun quarter = run(kTokens / 4, 1, 1), half = run(kTokens / 2, 1, 1);
  const LongRun two = run(kTokens, 2, 2), four = run(kTokens, 4, 1);
  EXPECT_EQ(half.activation_bytes, 2 * quarter.activation_bytes);
  EXPECT_EQ(two.activation_bytes, half.activation_bytes);
  EXPECT_EQ(four.activation_bytes, quarter.activation_bytes);
  EXPECT_LT(four.all_bytes, two.all_bytes);
  EXPECT_NEAR(four.first_loss, two.first_loss, 1e-6) << "sums in another order, F32";
  EXPECT_LT(two.last_loss, two.first_loss);
}

SharedCore zigzag_of(std::int64_t tokens, int ranks) {
  return {.part = [=](int rank) { return token_part(ContextForm::Zigzag, rank, ranks, tokens); },
          .make =
              [](const Rank& rank) {
                return std::make_unique<RingAttention>(rank, rank.world, "core", 2,
                                                       ContextForm::Zigzag);
              }};
}

// 4 d c^2 FLOPs a turn beside 4 d c bytes: c = FLOPs/bandwidth, here the next even number.
TEST(LongContext, HidesMessagesFromTheFormulasBlockOn) {
  struct {
    double flops, bandwidth;
    std::int64_t block;
  } machines[] = {{312e12, 300e9, 1040}, {123e12, 112e9, 1100}, {1e12, 1e12, 2}, {5e12, 1e12, 6}};
  for (const auto& machine : machines)
    for (const int ranks : {2, 4}) {
      const std::int64_t found =
          hidden_from(products_and_links(machine.flops, machine.bandwidth), ranks, 64, 2,
                      [=](std::int64_t tokens) { return zigzag_of(tokens, ranks); });
      EXPECT_EQ(found, machine.block) << machine.flops << ", " << ranks << " ranks";
    }
  EXPECT_TRUE(error_says(
      [] {
        hidden_from(products_and_links(1e15, 1), 2, 64, 1 << 19,
                    [](std::int64_t tokens) { return zigzag_of(tokens, 2); });
      },
      {"hidden_from: 2097152 tokens a rank do not hide their messages"}));
}

// Forward sends keys and values of N - 1 turns: 4 d c bytes each. Messages that take as long as
// products are hidden in forward; backward has sums of gradients beside them, in F32.
TEST(LongContext, SecondsAndBytesAreThoseOfTheFormula) {
  constexpr int kRanks = 4;
  constexpr std::int64_t kBlock = 1000, d = 64;
  const CoreFigures figures = run_core(products_and_links(1e15, 1e12), kRanks, kRanks * kBlock, d,
                                       zigzag_of(kRanks * kBlock, kRanks));
  const double turn = 4.0 * d * kBlock * kBlock / 1e15;
  EXPECT_NEAR(figures.forward_seconds, kRanks * turn, 1e-9 * turn);
  EXPECT_GT(figures.backward_seconds, 2 * kRanks * turn) << "four products and the last hop";
  const double block = 4.0 * d * kBlock;  // bytes
  EXPECT_EQ(figures.sent_bytes, 3 * block + 3 * block + 4 * 2 * block);
}

}  // namespace
}  // namespace aisc
