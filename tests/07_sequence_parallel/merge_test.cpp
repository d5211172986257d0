// Two softmaxes become one: by hand, at the ends of what numbers there are, and against attention
// to all keys at once.
#include "07_sequence_parallel/merge.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "07_sequence_parallel/token_parts.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/compare.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

constexpr double kNone = -std::numeric_limits<double>::infinity();

TEST(Merge, ByHand) {
  const Merged m = merged(std::log(1), std::log(3));
  const char* parts = "exponentials 1 and 3: ";
  EXPECT_NEAR(m.lse, std::log(4), 1e-15) << parts << "the log of their sum, 4";
  EXPECT_NEAR(m.of_a, 0.25, 1e-15) << parts << "the first one's share";
  EXPECT_NEAR(m.of_b, 0.75, 1e-15) << parts << "the second one's share";
}

TEST(Merge, WithNoKeysIsTheOther) {
  for (const auto& [a, b, of_a, of_b] :
       {std::tuple{kNone, 5.0, 0.0, 1.0}, {5.0, kNone, 1.0, 0.0}, {kNone, kNone, 0.0, 0.0}}) {
    const Merged m = merged(a, b);
    const std::string parts =
        fmt::format("log-sum-exps {} and {}, of which -inf is that of no keys: the ", a, b);
    EXPECT_EQ(m.lse, std::max(a, b)) << parts << "log-sum-exp of both";
    EXPECT_EQ(m.of_a, of_a) << parts << "first one's share";
    EXPECT_EQ(m.of_b, of_b) << parts << "second one's share";
  }
}

TEST(Merge, OfLargeScoresOverflowsNowhere) {
  for (const double far : {1e4, 750.0, 709.0}) {
    const Merged m = merged(far, -far);
    std::string parts = fmt::format("log-sum-exps {} and {}: the ", far, -far);
    EXPECT_EQ(m.lse, far) << parts << "log-sum-exp of both";
    EXPECT_EQ(m.of_a, 1) << parts << "first one's share";
    EXPECT_EQ(m.of_b, 0) << parts << "second one's share";
    const Merged same = merged(-far, -far);
    parts = fmt::format("log-sum-exps {0} and {0}: the ", -far);
    EXPECT_NEAR(same.lse, std::log(2) - far, 1e-10) << parts << "log-sum-exp of both";
    EXPECT_EQ(same.of_a - 0.5, 0) << parts
                                  << "first one's share, less a half; merge.h says how the "
                                  << "shares keep all their digits";
  }
}

// In any order of the parts, of which one is of no key that anybody sees.
TEST(Merge, OfPartsOfTheKeysIsAttentionToAll) {
  TestWorld world;
  const std::int64_t B = 2, T = 9, K = 20, H = 2, C = 10;
  const auto random = [&](const Shape& shape, const char* name) {
    return random_tensor(shape, DType::F64, world.device, name);
  };
  const Tensor q = random({B, T, C}, "q"), kv = random({2, B, K, C}, "kv");
  Tensor all({B, T, C}, DType::F64, world.device), lse({B, H, T}, DType::F64, world.device);
  ops::attention(all, lse, q, kv, H, {.queries = {.first = 5}});
  for (const std::vector<int>& order : {std::vector{0, 1, 2, 3}, {3, 1, 0, 2}}) {
    Tensor out = Tensor::zeros({B, T, C}, DType::F64, world.device);
    Tensor sums({B, H, T}, DType::F64, world.device);
    ops::fill(sums, kNone);
    for (const int part : order) {
      const std::int64_t first = 5 * part, count = 5;
      Tensor some({2, B, count, C}, DType::F64, world.device);
      for (std::int64_t i = 0; i < 2 * B; ++i)
        world.device.copy(some.view().flat(i * count * C, count * C),
                          kv.view().flat((i * K + first) * C, count * C));
      Tensor block({B, T, C}, DType::F64, world.device),
          block_sums(sums.shape(), DType::F64, world.device);
      ops::attention(block, block_sums, q, some, H,
                     {.queries = {.first = 5}, .keys = {.first = first}});
      merge_attention(out, sums, block, block_sums);
    }
    EXPECT_TRUE(all_close(out, to_doubles(all), {1e-13}));
    EXPECT_TRUE(all_close(sums, to_doubles(lse), {1e-13}));
  }
}

TEST(TokenParts, CoverTheSequenceOnce) {
  for (const ContextForm form :
       {ContextForm::Ring, ContextForm::Zigzag, ContextForm::Ulysses, ContextForm::Rsa})
    for (const int ranks : {1, 2, 3, 4, 5})
      for (const std::int64_t tokens : {5, 12, 13, 30}) {
        std::vector<int> seen(static_cast<std::size_t>(tokens));
        for (int rank = 0; rank < ranks; ++rank) {
          const TokenPart part = token_part(form, rank, ranks, tokens);
          std::int64_t before = -1;
          for (std::int64_t t = 0; t < part.count; ++t) {
            EXPECT_GT(part.runs.position(t), before)
                << ranks << " ranks, " << tokens << " tokens: where token " << t << " of rank "
                << rank << " stands, behind the one before";
            before = part.runs.position(t);
            ++seen[static_cast<std::size_t>(before)];
          }
        }
        EXPECT_EQ(seen, std::vector<int>(seen.size(), 1))
            << ranks << " ranks, " << tokens << " tokens: how many ranks have each token";
      }
}

// Pairs of a query and a key that it sees, of each rank: with zigzag all the same.
TEST(TokenParts, OfZigzagCostTheSame) {
  const auto pairs = [](ContextForm form, int rank) {
    const TokenPart part = token_part(form, rank, 4, 64);
    std::int64_t sum = 0;
    for (std::int64_t t = 0; t < part.count; ++t) sum += part.runs.position(t) + 1;
    return sum;
  };
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(pairs(ContextForm::Zigzag, rank), 64 * 65 / 2 / 4)
        << "zigzag, 64 tokens, 4 ranks: pairs of a query and a key of rank " << rank
        << ": all ranks have as many";
    EXPECT_EQ(pairs(ContextForm::Ring, rank), 16 * 17 / 2 + 16 * 16 * rank)
        << "ring, 64 tokens, 4 ranks: pairs of a query and a key of rank " << rank;
  }
}

TEST(TokenPartsGiven, SayWhatDoesNotFit) {
  EXPECT_TRUE(error_says([] { token_part(ContextForm::Zigzag, 0, 4, 3); },
                         {"3 tokens over 4 ranks: expected one or more for each"}));
  EXPECT_TRUE(
      error_says([] { parse_context_form("rings"); }, {"'rings'", "ring, zigzag, ulysses or rsa"}));
}

}  // namespace
}  // namespace aisc
