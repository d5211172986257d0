// Philox against the vectors published with it (Random123, kat_vectors), and as a source of
// numbers.
#include "common/core/rng.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace aisc {
namespace {

using Words = std::array<std::uint32_t, 4>;

TEST(Philox4x32, MatchesThePublishedVectors) {
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32_10({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(
      philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, IsTheBijectionOfCounterStreamAndKey) {
  const Philox random(1, "weight", 0x500000002u);
  const std::uint64_t block = 0x700000003u;
  EXPECT_EQ(random.stream(), (std::array<std::uint32_t, 2>{2, 5}));
  EXPECT_EQ(random.block(block), philox4x32_10({3, 7, 2, 5}, random.key()));
  for (std::uint64_t i = 0; i < 40; ++i) EXPECT_EQ(random.bits(i), random.block(i / 4)[i % 4]);
}

// Whoever asks, in whatever order, gets the same value: layouts of ranks rely on it.
TEST(Philox, ValuesDoNotDependOnTheOrder) {
  const Philox random(42, "blocks.0.fc.weight"), again(42, "blocks.0.fc.weight");
  std::vector<double> forwards, backwards;
  for (std::uint64_t i = 0; i < 1000; ++i) forwards.push_back(random.normal(i));
  for (std::uint64_t i = 1000; i-- > 0;) backwards.push_back(again.normal(i));
  EXPECT_EQ(forwards, std::vector<double>(backwards.rbegin(), backwards.rend()));
}

TEST(Philox, SeedsNamesAndStreamsAreUnrelated) {
  std::set<Words> blocks;
  int made = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    for (const char* name : {"", "a", "b", "ab", "ba", "blocks.1.weight", "blocks.2.weight"})
      for (std::uint64_t stream = 0; stream < 5; ++stream, ++made)
        blocks.insert(Philox(seed, name, stream).block(0));
  EXPECT_EQ(static_cast<int>(blocks.size()), made);
}

TEST(Philox, UniformValuesFillTheIntervalEvenly) {
  const Philox random(3, "uniform");
  constexpr int kCount = 200'000, kBins = 64;
  double sum = 0, squares = 0;
  std::vector<double> bins(kBins);
  for (int i = 0; i < kCount; ++i) {
    const double u = random.uniform(static_cast<std::uint64_t>(i));
    ASSERT_GE(u, 0);
    ASSERT_LT(u, 1);
    sum += u;
    squares += u * u;
    ++bins[static_cast<std::size_t>(u * kBins)];
  }
  const double mean = sum / kCount;
  EXPECT_NEAR(mean, 0.5, 4 * std::sqrt(1.0 / 12 / kCount));
  EXPECT_NEAR(squares / kCount - mean * mean, 1.0 / 12, 0.001);
  constexpr double kExpected = double(kCount) / kBins;
  double chi2 = 0;  // 63 degrees of freedom: mean 63, deviation 11.2
  for (const double n : bins) chi2 += (n - kExpected) * (n - kExpected) / kExpected;
  EXPECT_NEAR(chi2, 63, 5 * 11.2);
}

TEST(Philox, NormalValuesHaveTheMomentsOfABell) {
  const Philox random(4, "normal");
  constexpr int kCount = 200'000;
  double sums[5] = {};
  int beyond_two = 0;
  double neighbours = 0, previous = 0;
  for (int i = 0; i < kCount; ++i) {
    const double x = random.normal(static_cast<std::uint64_t>(i));
    double power = 1;
    for (double& sum : sums) {
      sum += power;
      power *= x;
    }
    beyond_two += std::abs(x) > 2;
    neighbours += x * previous;
    previous = x;
  }
  const double root = std::sqrt(double(kCount));
  EXPECT_NEAR(sums[1] / kCount, 0, 4 / root);
  EXPECT_NEAR(sums[2] / kCount, 1, 4 * std::sqrt(2.0) / root);
  EXPECT_NEAR(sums[3] / kCount, 0, 4 * std::sqrt(15.0) / root);
  EXPECT_NEAR(sums[4] / kCount, 3, 4 * std::sqrt(96.0) / root);
  EXPECT_NEAR(beyond_two / double(kCount), 0.0455, 0.002);
  EXPECT_NEAR(neighbours / kCount, 0, 4 / root);
}

TEST(Philox, BelowIsFairAndInside) {
  const Philox random(5, "below");
  std::vector<int> counts(7);
  for (std::uint64_t i = 0; i < 70'000; ++i) ++counts.at(random.below(i, 7));
  for (const int n : counts) EXPECT_NEAR(n, 10'000, 5 * std::sqrt(70'000 * (1.0 / 7) * (6.0 / 7)));
  EXPECT_EQ(random.below(9, 1), 0u);
  const std::uint64_t large = std::uint64_t{1} << 62;
  bool upper = false;
  for (std::uint64_t i = 0; i < 100; ++i) {
    EXPECT_LT(random.below(i, large), large);
    upper |= random.below(i, large) > large / 2;
  }
  EXPECT_TRUE(upper) << "all 64 bits are used";
}

}  // namespace
}  // namespace aisc
