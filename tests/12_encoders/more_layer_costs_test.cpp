// The table of four layers: its own numbers, the charges that are those, and where they cross.
#include "12_encoders/more/layer_costs.h"

#include <gtest/gtest.h>

#include "common/comm/launch.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

SequenceCost counted_on_nothing(SequenceLayer layer, const SequenceSizes& sizes) {
  static const Machine machine = find_machine("limitless");
  return sequence_cost(layer, sizes, machine);
}

// A sentence of 70 tokens, 2000 columns: 70 * 70 * 2000 against 70 * 2000 * 2000.
TEST(LayerCosts, SeventyTokensOfTwoThousandColumns) {
  const SequenceSizes sizes{.tokens = 70, .width = 2000};
  EXPECT_EQ(counted_on_nothing(SequenceLayer::Attention, sizes).counted, 9.8e6)
      << "n^2 d: each of 70 tokens with each, 2000 products";
  EXPECT_EQ(counted_on_nothing(SequenceLayer::Recurrent, sizes).counted, 2.8e8)
      << "n d^2: 70 times a vector of 2000 by a matrix";
}

TEST(LayerCosts, ChargesAreTheTables) {
  for (const SequenceSizes& s : {SequenceSizes{.tokens = 1, .width = 1},
                                 {.tokens = 12, .width = 5, .taps = 4, .reach = 3},
                                 {.tokens = 30, .width = 64, .taps = 1, .reach = 30}})
    for (const SequenceLayer layer : kSequenceLayers) {
      const SequenceCost cost = counted_on_nothing(layer, s);
      EXPECT_EQ(cost.counted, table_multiplications(layer, s))
          << name_of(layer) << ", " << s.tokens;
      EXPECT_EQ(cost.in_a_chain, layer == SequenceLayer::Recurrent ? s.tokens : 1)
          << name_of(layer) << ": sequential operations";
      const auto n = static_cast<double>(s.tokens), d = static_cast<double>(s.width);
      const double whole[] = {2 * n * n * d + 4 * n * d * d, 8 * n * d * d, cost.counted,
                              2 * static_cast<double>(s.reach) * n * d + 4 * n * d * d};
      EXPECT_EQ(cost.whole, whole[static_cast<int>(layer)]) << name_of(layer);
    }
}

// The table's products are as many at n = d. Of whole layers an LSTM has 8 n d^2, and attention
// reaches that at n = 2d.
TEST(LayerCosts, AttentionAndRecurrenceCrossAtNEqualToD) {
  constexpr std::int64_t d = 48;
  for (std::int64_t n = 1; n <= 4 * d; n += n < 4 ? 1 : 4) {
    const SequenceSizes sizes{.tokens = n, .width = d};
    const SequenceCost attention = counted_on_nothing(SequenceLayer::Attention, sizes),
                       recurrent = counted_on_nothing(SequenceLayer::Recurrent, sizes);
    EXPECT_EQ(attention.counted < recurrent.counted, n < d) << n;
    EXPECT_EQ(attention.counted > recurrent.counted, n > d) << n;
    EXPECT_EQ(attention.whole < recurrent.whole, n < 2 * d) << n;
    EXPECT_EQ(attention.whole > recurrent.whole, n > 2 * d) << n;
  }
}

// On a GPU an operation takes some microseconds however small it is, so a chain of n takes n times
// that, whatever it multiplies.
TEST(LayerCosts, AChainTakesItsTimeOnAGpu) {
  const Machine machine = find_machine("dgx-a100-40gb");
  const SequenceSizes shorter{.tokens = 64, .width = 64}, longer{.tokens = 256, .width = 64};
  const auto seconds = [&](SequenceLayer layer, const SequenceSizes& sizes) {
    return sequence_cost(layer, sizes, machine).seconds;
  };
  EXPECT_GE(seconds(SequenceLayer::Recurrent, longer), 256 * machine.launch_seconds);
  EXPECT_GT(seconds(SequenceLayer::Recurrent, longer),
            3 * seconds(SequenceLayer::Recurrent, shorter));
  EXPECT_LT(seconds(SequenceLayer::Attention, longer),
            2 * seconds(SequenceLayer::Attention, shorter));
}

TEST(LayerCosts, RunsHere) {
  launch({.ranks = 1, .bind = false}, [&](const Rank& rank) {
    for (const SequenceLayer layer : kSequenceLayers)
      EXPECT_GT(sequence_seconds(rank, layer, {.tokens = 6, .width = 8, .reach = 3}, 2), 0)
          << name_of(layer);
  });
}

TEST(LayerCosts, SaysWhichSizesAreNone) {
  const auto cost = [](const SequenceSizes& sizes) {
    return [sizes] { counted_on_nothing(SequenceLayer::Restricted, sizes); };
  };
  EXPECT_TRUE(error_says(cost({.tokens = 0, .width = 4}), {"n 0", "1 or more"}));
  EXPECT_TRUE(error_says(cost({.tokens = 8, .width = 4, .reach = 3}), {"n 8", "r 3", "divide n"}));
  EXPECT_TRUE(error_says(cost({.tokens = 8, .width = 4, .taps = 0}), {"k 0"}));
}

}  // namespace
}  // namespace aisc
