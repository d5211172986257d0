// Tokens for heads and back: the attention of one rank, and what is sent.
#include "07_sequence_parallel/ulysses.h"

#include "tests/07_sequence_parallel/context_layers.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

using context::CoreCase;

context::MakeCore ulysses(const CoreCase& c) {
  return [c](const Rank& rank, Communicator& cp) {
    return std::make_unique<Ulysses>(rank, cp, "core", c.H, c.sees);
  };
}

const CoreCase kUlysses[] = {{ContextForm::Ulysses, 1, 2, 5, 2, 4},
                             {ContextForm::Ulysses, 2, 1, 8, 2, 4},
                             {ContextForm::Ulysses, 2, 3, 7, 4, 5},
                             {ContextForm::Ulysses, 3, 2, 10, 3, 3},
                             {ContextForm::Ulysses, 4, 2, 130, 4, 8}};

TEST(Ulysses, IsTheAttentionOfOneRank) {
  for (const CoreCase& c : kUlysses) context::expect_attention_core(c, ulysses(c));
}

// All to all, up to the padding.
TEST(Ulysses, OfAnEncoderIsTheAttentionOfOneRank) {
  for (const CoreCase& c : kUlysses) {
    const CoreCase encoder = context::of_encoder(c);
    context::expect_attention_core(encoder, ulysses(encoder));
  }
}

// A rank keeps a quarter of what it has: of qkv 3 * 3 * 8 numbers, of the output 3 * 8.
TEST(Ulysses, SendsFourTensorsOfItsTokens) {
  const CoreCase c{ContextForm::Ulysses, 4, 1, 12, 4, 2};
  const context::CoreResult found = context::run_core(c, ulysses(c));
  const std::int64_t own = 3 * 8 * 8;  // bytes of 3 tokens of 8 columns, F64
  EXPECT_EQ(found.sent_forward, 4 * own * 3 / 4);
  EXPECT_EQ(found.sent, 2 * 4 * own * 3 / 4);
}

TEST(UlyssesGiven, HasAtMostOneRankAHead) {
  launch({.ranks = 3, .bind = false}, [](const Rank& rank) {
    EXPECT_TRUE(error_says([&] { Ulysses(rank, rank.world, "blocks.0.attention", 2); },
                           {"blocks.0.attention: 2 heads over 3 ranks of world"}));
  });
}

}  // namespace
}  // namespace aisc
