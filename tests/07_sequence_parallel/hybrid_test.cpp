// Tokens for heads inside a node and a ring across nodes: the attention of one rank, forward and
// backward, whatever the sizes; who has which tokens; what is sent where.
#include "07_sequence_parallel/more/hybrid.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <mutex>

#include "common/comm/launch.h"
#include "common/nn/key_value_cache.h"
#include "tests/support/compare.h"
#include "tests/support/drawn.h"
#include "tests/support/error_says.h"
#include "tests/support/late_comm.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

struct HybridCase {
  ContextForm form;
  int nodes, node;
  std::int64_t B, T, H, D;

  int ranks() const { return nodes * node; }
  TokenPart part(int rank) const { return hybrid_part(form, rank, ranks(), node, T); }
};
std::ostream& operator<<(std::ostream& out, const HybridCase& c) {
  return out << (c.form == ContextForm::Ring ? "ring, " : "zigzag, ") << c.nodes << " nodes of "
             << c.node << ", " << c.B << " x " << c.T << " x " << c.H << " x " << c.D;
}

TEST(HybridPart, IsByHand) {
  // 16 tokens: node 0 has 0-3 and 12-15, node 1 has 4-11.
  const auto positions = [](const HybridCase& c, int rank) {
    std::vector<std::int64_t> found;
    const TokenPart part = c.part(rank);
    for (std::int64_t t = 0; t < part.count; ++t) found.push_back(part.runs.position(t));
    return found;
  };
  using Numbers = std::vector<std::int64_t>;
  const HybridCase two{ContextForm::Zigzag, 2, 2, 1, 16, 2, 2};
  EXPECT_EQ(positions(two, 0), (Numbers{0, 1, 2, 3}));
  EXPECT_EQ(positions(two, 1), (Numbers{12, 13, 14, 15}));
  EXPECT_EQ(positions(two, 2), (Numbers{4, 5, 6, 7}));
  const HybridCase three{ContextForm::Zigzag, 2, 3, 1, 16, 3, 2};
  EXPECT_EQ(positions(three, 0), (Numbers{0, 1}));
  EXPECT_EQ(positions(three, 1), (Numbers{2, 3, 12})) << "the seam of two runs";
  EXPECT_EQ(positions(three, 2), (Numbers{13, 14, 15}));
  EXPECT_TRUE(error_says([] { hybrid_part(ContextForm::Ring, 1, 6, 3, 4); },
                         {"2 tokens of a node for 3 ranks: expected 3 or more"}));
}

TEST(HybridPart, CoversTheSequenceOnce) {
  for (const ContextForm form : {ContextForm::Ring, ContextForm::Zigzag}) {
    const HybridCase c{form, 3, 2, 1, drawn("tokens of six ranks", 12, 200), 2, 2};
    std::vector<int> seen(static_cast<std::size_t>(c.T));
    for (int rank = 0; rank < c.ranks(); ++rank) {
      const TokenPart part = c.part(rank);
      for (std::int64_t t = 0; t < part.count; ++t)
        ++seen.at(static_cast<std::size_t>(part.runs.position(t)));
    }
    EXPECT_EQ(seen, std::vector<int>(seen.size(), 1)) << c;
  }
}

// Rows of a rank, (B, own, C) of (B, T, C).
Tensor rows_of(const Tensor& whole, const TokenPart& part) {
  const std::int64_t B = whole.shape()[0], T = whole.shape()[1], C = whole.shape()[2];
  Tensor own({B, part.count, C}, whole.dtype(), whole.device());
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t t = 0; t < part.count; ++t)
      whole.device().copy(own.view().flat((b * part.count + t) * C, C),
                          whole.view().flat((b * T + part.runs.position(t)) * C, C));
  return own;
}
// The largest difference of a rank's rows from those of `whole`.
double difference(const Tensor& own, const std::vector<double>& whole, const TokenPart& part,
                  std::int64_t T) {
  const std::int64_t B = own.shape()[0], C = own.shape()[2];
  const std::vector<double> values = to_doubles(own);
  double worst = 0;
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t t = 0; t < part.count; ++t)
      for (std::int64_t c = 0; c < C; ++c) {
        const double mine = values[static_cast<std::size_t>((b * part.count + t) * C + c)];
        const std::int64_t at = (b * T + part.runs.position(t)) * C + c;
        worst = std::max(worst, std::abs(mine - whole[static_cast<std::size_t>(at)]));
      }
  return worst;
}

TEST(Hybrid, IsTheAttentionOfOneRank) {
  for (const HybridCase& c : {HybridCase{ContextForm::Ring, 2, 2, 1, 8, 2, 4},
                              HybridCase{ContextForm::Zigzag, 2, 2, 2, 13, 2, 4},
                              HybridCase{ContextForm::Zigzag, 3, 2, 2, 17, 4, 3},
                              HybridCase{ContextForm::Ring, 2, 3, 1, 70, 6, 5},
                              HybridCase{ContextForm::Zigzag, 1, 3, 2, 10, 3, 4},
                              HybridCase{ContextForm::Zigzag, 3, 1, 1, 19, 2, 4}}) {
    const auto random = [&](std::int64_t columns, Device& device, const char* name) {
      return random_tensor({c.B, c.T, columns}, DType::F64, device, name);
    };
    const std::int64_t C = c.H * c.D;
    std::vector<double> out, dqkv;
    launch({.ranks = 1, .bind = false}, [&](const Rank& rank) {
      CausalCore core(rank, "core", c.H);
      Saved saved;
      out = to_doubles(core.forward(random(3 * C, rank.device, "qkv"), saved, {}));
      dqkv = to_doubles(core.backward(random(C, rank.device, "dout"), saved, {}));
    });
    launch(late(c.ranks()), [&](const Rank& rank) {
      const TokenPart part = c.part(rank.world.rank());
      const Pass pass{.tokens = part.runs, .sequence = c.T};
      Hybrid core(rank, rank.world, "core", c.H, c.node, c.form);
      Saved saved;
      const Tensor mine =
          core.forward(rows_of(random(3 * C, rank.device, "qkv"), part), saved, pass);
      const Tensor dmine =
          core.backward(rows_of(random(C, rank.device, "dout"), part), saved, pass);
      EXPECT_EQ(saved.size(), 0u);
      EXPECT_LT(difference(mine, out, part, c.T), 1e-12) << c;
      EXPECT_LT(difference(dmine, dqkv, part, c.T), 1e-12) << c;
    });
  }
}

// 2 nodes of 2 ranks, 16 tokens of 8 columns, F64: a rank's 4 tokens are 256 bytes.
TEST(Hybrid, SendsKeysAndValuesAloneBetweenNodes) {
  const HybridCase c{ContextForm::Zigzag, 2, 2, 1, 16, 2, 4};
  launch({.ranks = 4, .plans = default_plans(), .bind = false}, [&](const Rank& rank) {
    const TokenPart part = c.part(rank.world.rank());
    Hybrid core(rank, rank.world, "core", c.H, c.node, c.form);
    Saved saved;
    core.forward(Tensor::zeros({1, part.count, 24}, DType::F64, rank.device), saved,
                 {.tokens = part.runs, .sequence = c.T});
    constexpr std::int64_t kOwn = 4 * 8 * 8;
    EXPECT_EQ(core.inside().stats().sent().wire_bytes, 4 * kOwn / 2);
    EXPECT_EQ(core.across().stats().sent().wire_bytes, 2 * kOwn);
  });
}

TEST(Hybrid, SaysWhatDoesNotDivide) {
  launch({.ranks = 3, .bind = false}, [](const Rank& rank) {
    EXPECT_TRUE(error_says(
        [&] { Hybrid(rank, rank.world, "blocks.0.attention", 4, 2, ContextForm::Ring); },
        {"blocks.0.attention: 3 ranks of world in nodes of 2: expected a multiple of 2"}));
    EXPECT_TRUE(
        error_says([&] { Hybrid(rank, rank.world, "blocks.0.attention", 2, 3, ContextForm::Ring); },
                   {"blocks.0.attention: 2 heads over 3 ranks of blocks.0.attention.inside"}));
  });
}

// A token of a text that is being written, which all ranks have.
TEST(Hybrid, GeneratesAsOneRankDoes) {
  launch({.ranks = 2, .bind = false}, [](const Rank& rank) {
    const Tensor qkv = random_tensor({1, 1, 12}, DType::F64, rank.device, "qkv");
    const auto next = [&](const Layer& core) {
      KeyValueCache cache(3);
      Saved saved = Saved::nothing();
      return to_doubles(core.forward(qkv.clone(), saved, {.training = false, .cache = &cache}));
    };
    EXPECT_EQ(next(Hybrid(rank, rank.world, "core", 2, 2, ContextForm::Ring)),
              next(CausalCore(rank, "core", 2)));
  });
}

}  // namespace
}  // namespace aisc
