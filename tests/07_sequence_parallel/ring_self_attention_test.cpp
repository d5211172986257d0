// Scores that are stored on ranks which share each sequence: the attention of one rank that stores
// its own, dropped elements and all; what is sent, and what is kept.
#include "07_sequence_parallel/ring_self_attention.h"

#include <fmt/format.h>

#include <mutex>

#include "07_sequence_parallel/stored_attention.h"
#include "tests/06_tensor_parallel/by_hand_machine.h"
#include "tests/07_sequence_parallel/context_layers.h"
#include "tests/support/drawn.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

using context::CoreCase;

constexpr std::uint64_t kRsaSeed = 7;

context::MakeCore self_ring(const CoreCase& c, double rate) {
  return [c, rate](const Rank& rank, Communicator& cp) {
    // No tensor ranks: a communicator of this one alone, which the core outlives.
    struct Core final : Layer {
      Core(const Rank& of, Communicator& with, const CoreCase& its, double drop)
          : Layer(of, "core"),
            alone(of.world.split(of.world.rank(), 0, "tp")),
            inner(of, with, "core", its.H,
                  std::make_unique<QueryDropout>(of, *alone, "masks", drop, kRsaSeed, its.H),
                  its.sees) {}
      Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override {
        return inner.forward(std::move(x), saved, pass);
      }
      Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override {
        return inner.backward(std::move(dy), saved, pass);
      }
      std::unique_ptr<Communicator> alone;
      RingSelfAttention inner;
    };
    return std::make_unique<Core>(rank, cp, c, rate);
  };
}
context::MakeCore stored_on_one(const CoreCase& c, double rate) {
  return [c, rate](const Rank& rank, Communicator&) {
    return std::make_unique<StoredAttention>(
        rank, "core", c.H, std::make_unique<Dropout>(rank, "masks", rate, kRsaSeed, Masks::Stored),
        c.sees);
  };
}

// Odd samples, tokens of a rank, heads and columns; a rank with one token.
const CoreCase kSelfRings[] = {
    {ContextForm::Rsa, 1, 2, 5, 2, 4},  {ContextForm::Rsa, 2, 1, 8, 1, 4},
    {ContextForm::Rsa, 2, 3, 10, 3, 5}, {ContextForm::Rsa, 3, 2, 3, 3, 3},
    {ContextForm::Rsa, 3, 1, 21, 2, 7}, {ContextForm::Rsa, 4, 2, 20, 3, 1},
    {ContextForm::Rsa, 4, 1, 132, 1, 8}};

TEST(RingSelfAttention, IsTheStoredAttentionOfOneRank) {
  for (const CoreCase& c : kSelfRings)
    for (const double rate : {0.0, 0.3})
      context::expect_same_core(c, stored_on_one(c, rate), self_ring(c, rate));
}

// Without dropout it is attention as everywhere.
TEST(RingSelfAttention, IsTheAttentionOfOneRank) {
  for (const CoreCase& c : kSelfRings) context::expect_attention_core(c, self_ring(c, 0));
}

// All to all, up to the padding.
TEST(RingSelfAttention, OfAnEncoderIsTheAttentionOfOneRank) {
  for (const CoreCase& c : kSelfRings) {
    const CoreCase encoder = context::of_encoder(c);
    context::expect_attention_core(encoder, self_ring(encoder, 0));
    context::expect_same_core(encoder, stored_on_one(encoder, 0.3), self_ring(encoder, 0.3));
  }
}

// Samples that end before their sequence does, in the part of any rank; one that has no key at all.
TEST(RingSelfAttention, LeavesOutPadding) {
  for (const int ranks : {2, 3})
    for (const double rate : {0.0, 0.3}) {
      const CoreCase c{ContextForm::Rsa, ranks, 4, 12, 2, 3, 1, DType::F64, {12, 0, 5, 8}};
      context::expect_same_core(c, stored_on_one(c, rate), self_ring(c, rate));
      CoreCase whole = c;
      whole.lengths = {};
      EXPECT_NE(context::run_core(c, self_ring(c, rate)).out,
                context::run_core(whole, self_ring(c, rate)).out);
    }
}

// Scores of some 10^4 on both sides of 0.
TEST(RingSelfAttention, SurvivesLargeScores) {
  const CoreCase c{ContextForm::Rsa, 3, 1, 36, 2, 8, 60};
  context::expect_same_core(c, stored_on_one(c, 0.2), self_ring(c, 0.2));
}

// What is rounded in shorter types is rounded where one rank does it: scores, probabilities, their
// gradients; sums over the ranks once.
TEST(RingSelfAttention, RoundsAsOneRankDoes) {
  for (const auto& [dtype, tolerance] :
       {std::pair{DType::F32, 1e-5}, {DType::BF16, 2e-2}, {DType::F16, 2e-3}}) {
    const CoreCase c{ContextForm::Rsa, 3, 2, 15, 2, 4, 1, dtype};
    context::expect_same_core(c, stored_on_one(c, 0.2), self_ring(c, 0.2), tolerance);
  }
}

// n own tokens of C columns: 2 (N - 1) exchanges forward; backward as many, and 2 N of sums.
TEST(RingSelfAttention, SendsKeysRoundAndThenValues) {
  for (const int N : {1, 2, 3, 4})
    for (const DType dtype : {DType::F64, DType::BF16}) {
      const CoreCase c{ContextForm::Rsa, N, 3, 12, 2, 5, 1, dtype};
      const context::CoreResult found = context::run_core(c, self_ring(c, 0.1));
      const std::int64_t nC = 3 * (12 / N) * (2 * 5);
      const auto bytes = static_cast<std::int64_t>(size_of(dtype)),
                 of_sums = static_cast<std::int64_t>(size_of(statistics_of(dtype)));
      EXPECT_EQ(found.exchanges_forward, 2 * (N - 1)) << c;
      EXPECT_EQ(found.exchanges, 2 * (N - 1) + 2 * (N - 1) + 2 * N) << c;
      if (N == 1) continue;  // what goes home from here to here is no message
      EXPECT_EQ(found.sent_forward, 2 * (N - 1) * nC * bytes) << c;
      EXPECT_EQ(found.sent - found.sent_forward, 2 * (N - 1) * nC * bytes + 2 * N * nC * of_sums)
          << c;
      if (dtype == DType::BF16) {
        EXPECT_EQ(found.sent_forward, 4 * (N - 1) * nC);
        EXPECT_EQ(found.sent - found.sent_forward, (12 * N - 4) * nC);
      }
    }
}

// s tokens, b samples, h columns, a heads, 16 bits, masks of a byte: over N.
TEST(RingSelfAttention, KeepsAnNthOfWhatIsCounted) {
  const std::int64_t t = drawn("tokens of a rank of ring self-attention", 1, 20);
  for (const int N : {1, 2, 3}) {
    const std::int64_t s = N * t, b = 2, a = 3, h = a * 8, scores = a * s * s * b;
    const CoreCase c{ContextForm::Rsa, N, b, s, a, 8, 1, DType::BF16};
    EXPECT_EQ(context::run_core(c, self_ring(c, 0.1)).kept, (6 * s * b * h + 5 * scores) / N) << c;
    EXPECT_EQ(context::run_core(c, self_ring(c, 0)).kept, (6 * s * b * h + 2 * scores) / N) << c;
  }
}

// Seconds of forward on rank 0 of four, on a machine with such links.
double self_ring_seconds(double seconds_per_byte) {
  double seconds = 0;
  const CoreCase c{ContextForm::Rsa, 4, 1, 64, 2, 8};
  const Machine machine = split::by_hand_machine(seconds_per_byte);
  launch(on_machine(machine, 4), [&](const Rank& rank) {
    const TokenPart part = token_part(c.form, rank.world.rank(), c.ranks, c.T);
    const std::unique_ptr<Layer> core = self_ring(c, 0)(rank, rank.world);
    Tensor qkv = Tensor::zeros({1, part.count, c.H * 3 * c.D}, DType::F64, rank.device);
    Saved saved;
    rank.world.barrier();
    const double begin = rank.clock.now();
    core->forward(std::move(qkv), saved, {.tokens = part.runs, .sequence = c.T});
    rank.world.barrier();
    if (rank.world.rank() == 0) seconds = rank.clock.now() - begin;
  });
  return seconds;
}

// Where a product takes longer than a block travels, links cost nothing.
TEST(RingSelfAttention, HidesWhatTravelsBehindWhatIsComputed) {
  const double nothing = self_ring_seconds(0x1p-40);
  EXPECT_EQ(self_ring_seconds(0x1p-24), nothing);
  const double block = 16 * 16 * 8;  // bytes of the keys of 16 tokens
  const double slow = self_ring_seconds(0x1p-10);
  EXPECT_GT(slow, nothing);
  EXPECT_LT(slow, nothing + 6 * block * 0x1p-10) << "a part of it is hidden even so";
}

TEST(RingSelfAttention, NamesTokensThatDoNotDivide) {
  launch({.ranks = 2, .bind = false}, [](const Rank& rank) {
    const CoreCase c{ContextForm::Rsa, 2, 1, 7, 2, 4};
    const std::unique_ptr<Layer> core = self_ring(c, 0.1)(rank, rank.world);
    const TokenPart part = token_part(c.form, rank.world.rank(), 2, c.T);
    Tensor qkv = Tensor::zeros({1, part.count, c.H * 3 * c.D}, DType::F64, rank.device);
    rank.device.reset_peaks();
    const std::int64_t before = rank.device.ledger().total.live_bytes;
    Saved saved;
    EXPECT_TRUE(error_says(
        [&] { core->forward(std::move(qkv), saved, {.tokens = part.runs, .sequence = c.T}); },
        {"core: 7 tokens over 2 ranks of world: expected a multiple of 2"}));
    EXPECT_EQ(rank.device.ledger().total.peak_bytes, before) << "said before anything is allocated";
  });
}

// Ranks with some of the queries of some of the heads: all their masks are the mask of one rank.
TEST(QueryDropout, DropsWhatOneRankDrops) {
  constexpr std::int64_t kB = 3, kH = 6, kT = 6;
  const Pass whole{.step = 2, .first_sample = 5};
  const auto ones = [](const Shape& shape, const Rank& rank) {
    Tensor x(shape, DType::F64, rank.device);
    ops::fill(x, 1);
    return x;
  };
  std::vector<double> one, many(static_cast<std::size_t>(kB * kH * kT * kT));
  launch({.ranks = 1, .bind = false}, [&](const Rank& rank) {
    Saved saved;
    one = to_doubles(Dropout(rank, "masks", 0.4, kRsaSeed)
                         .forward(ones({kB, 1, kH * kT * kT}, rank), saved, whole));
  });
  std::mutex mutex;
  for (const auto& form : {std::pair{1, 1}, {3, 1}, {1, 2}, {2, 3}}) {
    const int cp = form.first, tp = form.second;
    launch({.ranks = cp * tp, .bind = false}, [&](const Rank& rank) {
      const int i = rank.world.rank() / tp, j = rank.world.rank() % tp;
      const std::unique_ptr<Communicator> heads = rank.world.split(i, j, "tp");
      const TokenPart part = token_part(ContextForm::Rsa, i, cp, kT);
      const std::int64_t H = kH / tp, t = part.count;
      Pass pass = whole;
      pass.tokens = part.runs;
      pass.sequence = kT;
      Saved saved;
      QueryDropout layer(rank, *heads, "masks", 0.4, kRsaSeed, H);
      const Tensor dropped = layer.forward(ones({kB, 1, H * t * kT}, rank), saved, pass);
      EXPECT_EQ(saved.bytes(), dropped.count()) << "a byte an element";
      const std::vector<double> mine = to_doubles(dropped);
      EXPECT_EQ(mine, to_doubles(layer.backward(ones(dropped.shape(), rank), saved, pass)));
      const std::lock_guard lock(mutex);
      for (std::int64_t b = 0; b < kB; ++b)
        for (std::int64_t h = 0; h < H; ++h)
          for (std::int64_t n = 0; n < t * kT; ++n)
            many[static_cast<std::size_t>(((b * kH + j * H + h) * kT + i * t) * kT + n)] =
                mine[static_cast<std::size_t>((b * H + h) * t * kT + n)];
    });
    EXPECT_EQ(many, one) << "cp " << cp << " tp " << tp;
  }
}

}  // namespace
}  // namespace aisc
