// Which windows a step sees, and that any split of the batch sees the same ones.
#include "common/data/batches.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/error_says.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

std::vector<std::uint8_t> counting(std::size_t count) {
  std::vector<std::uint8_t> text(count);
  for (std::size_t i = 0; i < count; ++i) text[i] = static_cast<std::uint8_t>(i);
  return text;
}

TEST(BatchSampler, TargetsAreTheTokensThatFollow) {
  CpuDevice device;
  const auto text = counting(200);
  const Batch batch = BatchSampler(text, 7, 1).batch(device, 0, 20);
  EXPECT_EQ(batch.tokens.shape(), (Shape{20, 7}));
  const auto tokens = batch.tokens.values<std::int32_t>();
  const auto targets = batch.targets.values<std::int32_t>();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(targets[i], tokens[i] + 1);
    if (i % 7 > 0) {
      EXPECT_EQ(tokens[i], targets[i - 1]);
    }
  }
}

TEST(BatchSampler, ASampleDependsOnSeedAndIndexAlone) {
  CpuDevice device;
  const auto text = counting(200);
  const BatchSampler sampler(text, 7, 1);
  const Batch whole = sampler.batch(device, 12, 6);
  for (std::int64_t first = 0; first < 6; first += 2) {
    const Batch part = sampler.batch(device, 12 + first, 2);
    EXPECT_TRUE(same_bits(part.tokens, whole.tokens.rows(first, first + 2)));
    EXPECT_TRUE(same_bits(part.targets, whole.targets.rows(first, first + 2)));
  }
  EXPECT_FALSE(same_bits(BatchSampler(text, 7, 2).batch(device, 12, 6).tokens, whole.tokens));
}

TEST(BatchSampler, ReachesTheFirstAndTheLastWindow) {
  CpuDevice device;
  const auto text = counting(12);
  const Batch batch = BatchSampler(text, 7, 1).batch(device, 0, 200);
  std::set<std::int32_t> starts;
  for (std::int64_t s = 0; s < 200; ++s) starts.insert(batch.tokens.data<std::int32_t>()[s * 7]);
  EXPECT_EQ(starts, (std::set<std::int32_t>{0, 1, 2, 3, 4}));
}

TEST(BatchSampler, NeedsOneByteMoreThanAWindow) {
  CpuDevice device;
  const auto text = counting(8);
  EXPECT_NO_THROW(BatchSampler(text, 7, 1).batch(device, 0, 3));
  EXPECT_TRUE(error_says([&] { BatchSampler(text, 8, 1); }, {"found 8 tokens", "expected 9"}));
  EXPECT_TRUE(error_says([&] { BatchSampler(text, 0, 1); }, {"context"}));
}

TEST(EvenWindows, SpreadFromTheBeginningToTheEnd) {
  CpuDevice device;
  const auto text = counting(101);
  const Batch batch = even_windows(text, 10, 4, device);
  const auto* tokens = batch.tokens.data<std::int32_t>();
  EXPECT_EQ(tokens[0], 0);
  EXPECT_EQ(tokens[10], 30);
  EXPECT_EQ(tokens[30], 90);
  EXPECT_EQ(batch.targets.data<std::int32_t>()[39], 100);
  EXPECT_TRUE(error_says([&] { even_windows(text, 101, 1, device); }, {"found 101 tokens", "102"}));
}

}  // namespace
}  // namespace aisc
