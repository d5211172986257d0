// Generation with cached keys and values against the forward pass of the whole sequence.
#include "common/nn/key_value_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/nn/gpt_fixture.h"
#include "tests/support/compare.h"
#include "tests/support/error_says.h"
#include "tests/support/ledger_checks.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

// Tokens [first, first + count) of (B, T).
Tensor tokens_of(const Tensor& all, std::int64_t first, std::int64_t count) {
  const std::int64_t B = all.shape()[0], T = all.shape()[1];
  Tensor part({B, count}, DType::I32, all.device());
  for (std::int64_t b = 0; b < B; ++b)
    all.device().copy(part.view().flat(b * count, count), all.view().flat(b * T + first, count));
  return part;
}

// logits (B, T, V) at position t: B * V numbers.
std::vector<double> position(const Tensor& logits, std::int64_t t) {
  const std::vector<double> all = to_doubles(logits);
  const std::int64_t B = logits.shape()[0], T = logits.shape()[1], V = logits.shape()[2];
  std::vector<double> result;
  for (std::int64_t b = 0; b < B; ++b)
    result.insert(result.end(), all.begin() + (b * T + t) * V, all.begin() + (b * T + t + 1) * V);
  return result;
}

// The last logits after each piece of `pieces` tokens are those of the whole sequence there.
void expect_same_logits(DeviceKind kind, DType dtype, Tolerance tolerance,
                        const std::vector<std::int64_t>& pieces) {
  TestWorld world(kind);
  TestGpt gpt(world, odd_config(dtype));
  const NoLeak no_leak(world.device);
  const Tensor tokens = random_tokens(world.device, 2, 11, 13, 3);
  const Tensor expected = forward(gpt.model, tokens);
  KeyValueCache cache(11);
  for (const std::int64_t piece : pieces) {
    const Tensor next = tokens_of(tokens, cache.length(), piece);
    const Tensor logits = forward_cached(gpt.model, next, cache);
    EXPECT_EQ(logits.shape(), Shape({2, 16}));
    EXPECT_TRUE(all_close(logits, position(expected, cache.length() - 1), tolerance))
        << name_of(dtype) << ", after " << cache.length() << " tokens";
  }
}

const std::vector<std::int64_t> kOneByOne(11, 1), kPieces{4, 1, 3, 1, 2},
    kPromptAndSteps{8, 1, 1}, kAtOnce{11};

// The order of sums is all that differs, so that the tolerances are those of single operations. A
// short type rounds about a dozen times on the way through two blocks, and the two ways may then
// take neighbouring values: as many roundings.
constexpr double kRoundings = 12;

class CacheOnDevices : public PerWorld {};
INSTANTIATE_TEST_SUITE_P(All, CacheOnDevices, ::testing::ValuesIn(device_kinds()),
                         device_kind_test_name);

TEST_P(CacheOnDevices, GivesTheLogitsOfTheUncachedForward) {
  for (const auto& pieces : {kOneByOne, kPieces, kPromptAndSteps, kAtOnce}) {
    expect_same_logits(GetParam(), DType::F64, kF64Tolerance, pieces);
    expect_same_logits(GetParam(), DType::F32, kF32Tolerance, pieces);
    expect_same_logits(GetParam(), DType::BF16, tolerance_of(DType::BF16, kRoundings), pieces);
    expect_same_logits(GetParam(), DType::F16, tolerance_of(DType::F16, kRoundings), pieces);
  }
}

// A wrong position would pass where positions do not matter: here they do.
TEST_P(CacheOnDevices, CountsPositionsOn) {
  TestWorld world(GetParam());
  TestGpt gpt(world, odd_config());
  const Tensor one = random_tokens(world.device, 1, 1, 13, 1);
  KeyValueCache cache(11);
  const std::vector<double> first = to_doubles(forward_cached(gpt.model, one, cache));
  const std::vector<double> second = to_doubles(forward_cached(gpt.model, one, cache));
  EXPECT_NE(first, second);
}

TEST_P(CacheOnDevices, StartsAnewAfterClear) {
  TestWorld world(GetParam());
  TestGpt gpt(world, odd_config());
  const Tensor tokens = random_tokens(world.device, 1, 11, 13, 3);
  const Tensor other = random_tokens(world.device, 1, 11, 13, 4);
  KeyValueCache cache(11), fresh(11);
  forward_cached(gpt.model, other, cache);
  cache.clear();
  EXPECT_EQ(cache.length(), 0);
  for (std::int64_t t = 0; t < 11; ++t)
    EXPECT_TRUE(same_bits(forward_cached(gpt.model, tokens_of(tokens, t, 1), cache),
                          forward_cached(gpt.model, tokens_of(tokens, t, 1), fresh)));
  cache.clear();  // other sizes are no error then
  EXPECT_NO_THROW(forward_cached(gpt.model, random_tokens(world.device, 3, 2, 13, 1), cache));
}

// 2 C numbers per token and layer for all the capacity, and nothing else after the first step.
TEST_P(CacheOnDevices, HoldsTwoRowsPerTokenAndLayer) {
  TestWorld world(GetParam());
  TestGpt gpt(world, odd_config(DType::F32));
  const Tensor token = random_tokens(world.device, 2, 1, 13, 3);
  const std::int64_t before = world.device.ledger()[Purpose::Activations].live_bytes;
  {
    KeyValueCache cache(10);
    const std::int64_t layers = 2, batch = 2, width = 15;
    for (int i = 0; i < 10; ++i) {
      forward_cached(gpt.model, token, cache);
      EXPECT_TRUE(live_bytes_are(world.device, Purpose::Activations,
                                 before + 4 * layers * batch * 10 * 2 * width));
    }
  }
  EXPECT_TRUE(live_bytes_are(world.device, Purpose::Activations, before));
}

// What a step computes: the same bytes are asked for in the 2nd and in the 60th, and the same spans
// are entered; an uncached step asks for memory by the length of the sequence.
TEST(KeyValueCache, AStepCostsTheSameAtEveryPosition) {
  TestWorld world;
  GptConfig config = odd_config(DType::F32);
  config.context = 64;
  TestGpt gpt(world, config);
  const Tensor token = random_tokens(world.device, 1, 1, 13, 3);
  KeyValueCache cache(64);
  forward_cached(gpt.model, token, cache);
  struct Cost {
    std::int64_t peak_bytes, allocations;
    std::size_t spans;
    bool operator==(const Cost&) const = default;
  };
  const auto cost_of = [&](const auto& step) {
    // Of activations: the workspace that a product asks for depends on the processor.
    const std::int64_t live = world.device.ledger()[Purpose::Activations].live_bytes;
    const std::int64_t allocations = world.device.ledger().allocations;
    world.device.reset_peaks();
    world.trace.reset();
    world.trace.record(true);
    step();
    const Ledger ledger = world.device.ledger();
    return Cost{ledger[Purpose::Activations].peak_bytes - live, ledger.allocations - allocations,
                world.trace.events().size()};
  };
  const auto cached = [&] { forward_cached(gpt.model, token, cache); };
  const Cost second = cost_of(cached);
  while (cache.length() < 60) cached();
  EXPECT_EQ(cost_of(cached), second);
  const Cost whole =
      cost_of([&] { forward(gpt.model, random_tokens(world.device, 1, 61, 13, 3)); });
  EXPECT_GT(whole.peak_bytes, 20 * second.peak_bytes);
}

TEST(KeyValueCache, NeverAsksTheSystemForMemoryAfterTheSecondStep) {
  TestWorld world;
  TestGpt gpt(world, odd_config(DType::F32));
  const Tensor token = random_tokens(world.device, 1, 1, 13, 3);
  KeyValueCache cache(11);
  forward_cached(gpt.model, token, cache);
  forward_cached(gpt.model, token, cache);
  const Ledger before = world.device.ledger();
  while (cache.length() < 11) forward_cached(gpt.model, token, cache);
  EXPECT_TRUE(no_cache_misses_since(world.device, before));
}

TEST_P(CacheOnDevices, EndsWithTheContextAndWithItsCapacity) {
  TestWorld world(GetParam());
  TestGpt gpt(world, odd_config());
  const auto tokens = [&](std::int64_t T) { return random_tokens(world.device, 1, T, 13, 3); };
  KeyValueCache large(100), small(5);
  forward_cached(gpt.model, tokens(10), large);
  EXPECT_TRUE(error_says([&] { forward_cached(gpt.model, tokens(2), large); },
                         {"positions", "a token at 11 of 11"}));
  EXPECT_EQ(large.length(), 10);
  EXPECT_NO_THROW(forward_cached(gpt.model, tokens(1), large));
  EXPECT_TRUE(error_says([&] { forward_cached(gpt.model, tokens(6), small); },
                         {"6 tokens after 0 are 6", "room for 5"}));
  EXPECT_TRUE(error_says([&] { forward_cached(gpt.model, tokens(0), small); }, {"no tokens"}));
  EXPECT_TRUE(error_says([&] { small.advance(6); }, {"6 tokens after 0", "room for 5"}));
  EXPECT_TRUE(error_says([] { KeyValueCache(0); }, {"capacity is 0", "1 or more"}));
}

TEST(KeyValueCache, BelongsToOneBatchAndOneModel) {
  TestWorld world;
  TestGpt gpt(world, odd_config());
  GptConfig deeper = odd_config();
  deeper.layers = 3;
  TestGpt other(world, deeper);
  KeyValueCache cache(11);
  forward_cached(gpt.model, random_tokens(world.device, 2, 3, 13, 3), cache);
  EXPECT_TRUE(error_says(
      [&] { forward_cached(gpt.model, random_tokens(world.device, 1, 1, 13, 3), cache); },
      {"blocks.0.attention", "(2, 6, 11, 5) F64", "expected (1, 6, 11, 5) F64"}));
  EXPECT_TRUE(error_says(
      [&] { forward_cached(other.model, random_tokens(world.device, 2, 1, 13, 3), cache); },
      {"blocks.2.attention", "no keys and values of the 3 tokens so far"}));
}

TEST(KeyValueCache, IsNotForTraining) {
  TestWorld world;
  TestGpt gpt(world, odd_config());
  KeyValueCache cache(11);
  const Tensor tokens = random_tokens(world.device, 1, 3, 13, 3);
  EXPECT_TRUE(
      error_says([&] { forward_backward(gpt.model, tokens, tokens, {.cache = &cache}, 1.0); },
                 {"blocks.0.attention", "for generation", "training"}));
}

}  // namespace
}  // namespace aisc
