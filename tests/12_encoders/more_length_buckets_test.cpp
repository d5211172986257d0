// Padding by hand, buckets and their bounds, and what is left of the padding in them.
#include "12_encoders/more/length_buckets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "tests/support/error_says.h"

namespace aisc {
namespace {

// Lengths 1, 9, 2 and 8 in two batches of two: as they come each short one is padded to the length
// of a long one.
TEST(LengthBuckets, PaddingByHand) {
  const std::vector<std::int64_t> lengths{1, 9, 2, 8};
  const PaddingWaste mixed = padding_waste(lengths, {{0, 1}, {2, 3}});
  EXPECT_EQ(mixed.tokens, 20);
  EXPECT_EQ(mixed.padding, 8 + 6) << "1 is padded to 9, and 2 to 8";
  EXPECT_EQ(mixed.most, 18);
  EXPECT_DOUBLE_EQ(mixed.share(), 14.0 / 34);
  const PaddingWaste alike = padding_waste(lengths, {{0, 2}, {1, 3}});
  EXPECT_EQ(alike.padding, 1 + 1) << "1 is padded to 2, and 8 to 9";
  EXPECT_DOUBLE_EQ(alike.share(), 2.0 / 22);
  EXPECT_EQ(padding_waste(lengths, {{1}}).padding, 0);
  EXPECT_EQ(padding_waste({}, {}).share(), 0);
}

TEST(LengthBuckets, BoundsGrowByAFactorAndByOneAtLeast) {
  using Bounds = std::vector<std::int64_t>;
  EXPECT_EQ(bucket_bounds(8, 64, 2), (Bounds{8, 16, 32, 64}));
  EXPECT_EQ(bucket_bounds(8, 13, 1.1), (Bounds{8, 9, 10, 11, 12, 13}));
  EXPECT_EQ(bucket_bounds(20, 30, 1.1), (Bounds{20, 22, 24, 26, 28, 30}));
  EXPECT_EQ(bucket_bounds(7, 7, 3), (Bounds{7}));
  EXPECT_EQ(bucket_bounds(4, 9, 2), (Bounds{4, 8, 9}));
}

TEST(LengthBuckets, LengthsAreDrawnByCounter) {
  const SentenceLengths of{.median = 20, .spread = 0.6, .longest = 50};
  const std::vector<std::int64_t> lengths = draw_lengths(4001, 3, of), few = draw_lengths(9, 3, of);
  EXPECT_TRUE(std::equal(few.begin(), few.end(), lengths.begin()));
  EXPECT_NE(draw_lengths(9, 4, of), few);
  std::vector<std::int64_t> sorted = lengths;
  std::ranges::sort(sorted);
  EXPECT_GE(sorted.front(), 1);
  EXPECT_EQ(sorted.back(), 50);
  EXPECT_NEAR(static_cast<double>(sorted[2000]), 20, 1);
  // Of a normal distribution 15.9 % are more than one deviation below the median.
  EXPECT_NEAR(static_cast<double>(sorted[635]), 20 * std::exp(-0.6), 1);
  EXPECT_EQ(draw_lengths(3, 1, {.median = 5, .spread = 0}), (std::vector<std::int64_t>{5, 5, 5}));
}

void expect_each_once(const SampleBatches& batches, std::size_t samples, const char* what) {
  std::set<std::size_t> seen;
  std::size_t count = 0;
  for (const auto& batch : batches) {
    EXPECT_FALSE(batch.empty()) << what;
    count += batch.size();
    seen.insert(batch.begin(), batch.end());
  }
  EXPECT_EQ(count, samples) << what << ": a sample is in two batches, or in none";
  EXPECT_EQ(seen.size(), samples) << what;
}

TEST(LengthBuckets, EachSampleIsInOneBatchOfLikeLengths) {
  const std::vector<std::int64_t> lengths = draw_lengths(1003, 1),
                                  bounds = bucket_bounds(8, 256, 2);
  const SampleBatches random = random_batches(lengths.size(), 10, 1);
  expect_each_once(random, lengths.size(), "random");
  EXPECT_EQ(random.size(), 101u);
  EXPECT_EQ(random, random_batches(lengths.size(), 10, 1));
  EXPECT_NE(random, random_batches(lengths.size(), 10, 2));
  EXPECT_TRUE(random_batches(0, 10, 1).empty());
  for (const BucketBatch& size : {BucketBatch{.samples = 10}, BucketBatch{.places = 300}}) {
    const SampleBatches batches = bucketed_batches(lengths, bounds, size, 1);
    expect_each_once(batches, lengths.size(), "bucketed");
    bool rising = true;
    std::int64_t before = 0;
    for (const auto& batch : batches) {
      std::int64_t shortest = 256, longest = 0;
      for (const std::size_t i : batch) {
        shortest = std::min(shortest, lengths[i]);
        longest = std::max(longest, lengths[i]);
      }
      EXPECT_EQ(*std::ranges::lower_bound(bounds, shortest),
                *std::ranges::lower_bound(bounds, longest))
          << "lengths of two buckets in one batch";
      const std::int64_t bound = *std::ranges::lower_bound(bounds, longest);
      const std::int64_t most = size.samples > 0 ? 10 : std::max<std::int64_t>(1, 300 / bound);
      EXPECT_LE(std::ssize(batch), most) << "bucket " << bound;
      rising = rising && bound >= before;
      before = bound;
    }
    EXPECT_FALSE(rising) << "short samples come first: a run would see them alone";
    EXPECT_NE(batches, bucketed_batches(lengths, bounds, size, 2));
  }
}

// Half of the places are padding in random batches; finer buckets leave less, and batches by places
// have about as many each.
TEST(LengthBuckets, FinerBucketsWasteLess) {
  const std::vector<std::int64_t> lengths = draw_lengths(20000, 1);
  const double random = padding_waste(lengths, random_batches(lengths.size(), 64, 1)).share();
  EXPECT_GT(random, 0.5);
  double before = random;
  for (const double step : {4.0, 2.0, 1.5, 1.1}) {
    const double share =
        padding_waste(lengths,
                      bucketed_batches(lengths, bucket_bounds(8, 256, step), {.samples = 64}, 1))
            .share();
    EXPECT_LT(share, before) << step;
    before = share;
  }
  EXPECT_LT(before, 0.06);
  const PaddingWaste by_places = padding_waste(
      lengths, bucketed_batches(lengths, bucket_bounds(8, 256, 1.1), {.places = 2048}, 1));
  EXPECT_LE(by_places.most, 2048);
  EXPECT_LT(by_places.share(), 0.06);
}

TEST(LengthBuckets, SaysWhatItCannotBatch) {
  const std::vector<std::int64_t> lengths{3, 9};
  EXPECT_TRUE(error_says([] { draw_lengths(1, 1, {.median = 0}); }, {"a median of 0"}));
  EXPECT_TRUE(error_says([] { draw_lengths(1, 1, {.spread = -1}); }, {"a spread of -1"}));
  EXPECT_TRUE(error_says([&] { padding_waste(lengths, {{0, 2}}); }, {"sample 2", "below 2"}));
  EXPECT_TRUE(error_says([] { random_batches(3, 0, 1); }, {"0 samples each", "1 or more"}));
  EXPECT_TRUE(error_says([] { bucket_bounds(9, 8, 2); }, {"from 9 to 8"}));
  EXPECT_TRUE(error_says([] { bucket_bounds(1, 8, 1); }, {"steps of 1", "above 1"}));
  const std::vector<std::int64_t> bounds{4, 8};
  EXPECT_TRUE(error_says([&] { bucketed_batches(lengths, bounds, {.samples = 1}, 1); },
                         {"sample 1 has length 9", "8 or less"}));
  EXPECT_TRUE(error_says([&] { bucketed_batches(lengths, bounds, {}, 1); },
                         {"0 samples and 0 places", "one of them"}));
  EXPECT_TRUE(error_says([&] { bucketed_batches(lengths, bounds, {.samples = 1, .places = 2}, 1); },
                         {"1 samples and 2 places"}));
}

}  // namespace
}  // namespace aisc
