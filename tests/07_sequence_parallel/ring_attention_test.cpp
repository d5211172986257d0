// Keys and values that go round: the attention of one rank, whatever the lengths; what is sent, and
// that sending and computing overlap.
#include "07_sequence_parallel/ring_attention.h"

#include "tests/06_tensor_parallel/by_hand_machine.h"
#include "tests/07_sequence_parallel/context_layers.h"

namespace aisc {
namespace {

using context::CoreCase;

context::MakeCore ring(const CoreCase& c) {
  return [c](const Rank& rank, Communicator& cp) {
    return std::make_unique<RingAttention>(rank, cp, "core", c.H, c.form, c.sees);
  };
}

// Tokens that the ranks do not divide, a rank with one token, more samples than one.
const CoreCase kRings[] = {
    {ContextForm::Ring, 1, 2, 5, 2, 4},    {ContextForm::Ring, 2, 1, 8, 1, 4},
    {ContextForm::Ring, 2, 3, 7, 2, 5},    {ContextForm::Ring, 3, 2, 3, 2, 3},
    {ContextForm::Ring, 4, 1, 130, 2, 8},  {ContextForm::Zigzag, 2, 2, 9, 2, 4},
    {ContextForm::Zigzag, 3, 2, 6, 1, 8},  {ContextForm::Zigzag, 3, 1, 5, 2, 3},
    {ContextForm::Zigzag, 4, 1, 5, 1, 4},  // of which one rank has none
    {ContextForm::Zigzag, 4, 1, 131, 1, 8}};

TEST(RingAttention, IsTheAttentionOfOneRank) {
  for (const CoreCase& c : kRings) context::expect_attention_core(c, ring(c));
}

// All to all, up to the padding.
TEST(RingAttention, OfAnEncoderIsTheAttentionOfOneRank) {
  for (const CoreCase& c : kRings) {
    const CoreCase encoder = context::of_encoder(c);
    context::expect_attention_core(encoder, ring(encoder));
  }
}

// Where sums are longer than what is added up.
TEST(RingAttention, RoundsAsOneRankDoes) {
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::F32, 1e-5}, {DType::BF16, 2e-2}, {DType::F16, 2e-3}}) {
    const CoreCase c{ContextForm::Zigzag, 3, 2, 13, 2, 4, 1, dtype};
    context::expect_attention_core(c, ring(c), tolerance);
  }
}

// Scores of some hundreds on both sides of 0: blocks whose sums differ by many powers of e.
TEST(RingAttention, SurvivesLargeScores) {
  for (const ContextForm form : {ContextForm::Ring, ContextForm::Zigzag}) {
    const CoreCase c{form, 3, 1, 40, 2, 8, 12};
    context::expect_attention_core(c, ring(c));
  }
}

// Of 12 tokens of 8 columns on 4 ranks, F64: keys and values of 3 tokens are 2 * 3 * 8 * 8 bytes.
TEST(RingAttention, SendsKeysAndValuesRound) {
  const CoreCase c{ContextForm::Ring, 4, 1, 12, 2, 4};
  const context::CoreResult found = context::run_core(c, ring(c));
  const std::int64_t block = 2 * 3 * 8 * 8;
  EXPECT_EQ(found.sent_forward, 3 * block);
  EXPECT_EQ(found.sent, 3 * block + 3 * block + 4 * block);
}

// Seconds of forward on rank 0, on a machine with such links.
double forward_seconds(ContextForm form, double seconds_per_byte, std::int64_t T = 64) {
  double seconds = 0;
  const Machine machine = split::by_hand_machine(seconds_per_byte);
  launch(on_machine(machine, 4), [&](const Rank& rank) {
    const std::int64_t H = 2, D = 8;
    const TokenPart part = token_part(form, rank.world.rank(), 4, T);
    const RingAttention ring(rank, rank.world, "core", H, form);
    Tensor qkv = Tensor::zeros({1, part.count, H * 3 * D}, DType::F64, rank.device);
    Saved saved;
    rank.world.barrier();
    const double begin = rank.clock.now();
    ring.forward(std::move(qkv), saved, {.tokens = part.runs, .sequence = T});
    rank.world.barrier();
    if (rank.world.rank() == 0) seconds = rank.clock.now() - begin;
  });
  return seconds;
}

// Of runs in the order of the ranks rank r sees the keys of r + 1; it passes on those of all.
TEST(RingAttention, ComputesNothingWhereNothingIsSeen) {
  launch({.ranks = 4, .bind = false}, [](const Rank& rank) {
    const int r = rank.world.rank();
    const TokenPart part = token_part(ContextForm::Ring, r, 4, 12);
    const RingAttention layer(rank, rank.world, "core", 2, ContextForm::Ring);
    int calls = 0;
    rank.device.listen(
        [&](const OpCost& cost) { calls += cost.operation == std::string("attention"); });
    Saved nothing = Saved::nothing();
    layer.forward(Tensor::zeros({1, part.count, 2 * 3 * 4}, DType::F64, rank.device), nothing,
                  {.tokens = part.runs, .sequence = 12});
    rank.device.listen(nullptr);
    EXPECT_EQ(calls, r + 1) << "rank " << r << ", attention to the keys of one rank each";
  });
}

// Where a turn computes longer than a block travels, links cost nothing.
TEST(RingAttention, HidesWhatTravelsBehindWhatIsComputed) {
  const double nothing = forward_seconds(ContextForm::Zigzag, 0x1p-40);
  EXPECT_EQ(forward_seconds(ContextForm::Zigzag, 0x1p-24), nothing);
  const double block = 2 * 16 * 16 * 8;  // bytes of keys and values of 16 tokens
  const double slow = forward_seconds(ContextForm::Zigzag, 0x1p-10);
  EXPECT_GT(slow, nothing);
  EXPECT_LT(slow, nothing + 3 * block * 0x1p-10) << "a part of it is hidden even so";
}

// In runs of one rank after another the last rank computes longest, and all wait for it.
TEST(RingAttention, TakesTurnsOfEqualLengthInZigzags) {
  EXPECT_LT(forward_seconds(ContextForm::Zigzag, 0x1p-40, 512),
            0.75 * forward_seconds(ContextForm::Ring, 0x1p-40, 512));
}

}  // namespace
}  // namespace aisc
