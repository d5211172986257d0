// Where buckets begin and end, and how many there are.
#include "03_data_parallel/buckets.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/drawn.h"
#include "tests/support/error_says.h"

namespace aisc {

namespace {

using ::testing::ElementsAre;

using Ranges = std::vector<Range>;

std::string in_words(const Ranges& buckets) {
  std::string words;
  for (const Range& b : buckets) words += fmt::format(" [{}, {})", b.begin, b.end);
  return words.empty() ? " none" : words;
}

// What bucket_layout makes of these numbers, and the usual causes where it is something else.
::testing::AssertionResult buckets_are(std::int64_t count, std::int64_t first, std::int64_t size,
                                       const Ranges& expected) {
  const Ranges found = bucket_layout(count, first, size);
  if (found == expected) return ::testing::AssertionSuccess();
  auto failure = ::testing::AssertionFailure()
                 << fmt::format("{} elements, {} first, then {}: the buckets are{}, expected{}.",
                                count, first, size, in_words(found), in_words(expected));
  if (!found.empty() && found[0].begin == 0 && expected.size() > 1)
    return failure << "\nThe first lies at the front, where the first layer is: backward completes "
                      "it last.";
  if (!found.empty() && found.back().begin < 0)
    return failure << "\nThe last begins before the buffer.";
  if (found.size() < expected.size()) return failure << "\nSome elements are in no bucket.";
  return failure;
}

TEST(Buckets, OfTenElementsByHand) {
  EXPECT_TRUE(buckets_are(10, 2, 3, {{8, 10}, {5, 8}, {2, 5}, {0, 2}}));
}

TEST(Buckets, OfLessThanTheFirstAreOne) {
  EXPECT_TRUE(buckets_are(4, 4, 3, {{0, 4}}));
  EXPECT_TRUE(buckets_are(3, 4, 1, {{0, 3}}));
  EXPECT_TRUE(buckets_are(0, 4, 1, {}));
}

TEST(Buckets, AreAsManyAsTheFormulaSays) {
  for (int i = 0; i < 200; ++i) {
    const auto number = [&](const char* what, std::int64_t low, std::int64_t high) {
      return drawn(what + std::to_string(i), low, high);
    };
    const std::int64_t n = number("elements", 1, 1000), first = number("first", 1, 50),
                       size = number("size", 1, 200);
    const std::vector<Range> buckets = bucket_layout(n, first, size);
    const std::int64_t rest = std::max<std::int64_t>(0, n - first);
    ASSERT_EQ(buckets.size(), static_cast<std::size_t>(1 + (rest + size - 1) / size))
        << n << " elements, " << first << " first, then " << size;
    std::int64_t end = n;
    for (std::size_t b = 0; b < buckets.size(); ++b) {
      EXPECT_EQ(buckets[b].end, end) << "bucket " << b << " ends where the one before it begins";
      EXPECT_GT(buckets[b].count(), 0) << "bucket " << b;
      if (b + 1 < buckets.size()) {
        EXPECT_EQ(buckets[b].count(), b == 0 ? first : size) << "bucket " << b;
      }
      end = buckets[b].begin;
    }
    EXPECT_EQ(end, 0);
  }
}

TEST(BucketsGiven, NeedAnElement) {
  EXPECT_TRUE(error_says([] { bucket_layout(5, 0, 1); }, {"0 and then 1", "1 or more"}));
  EXPECT_TRUE(error_says([] { bucket_layout(5, 1, 0); }, {"1 and then 0", "1 or more"}));
}

TEST(BucketsGiven, WaitForTheUnitsInThem) {
  Parameter a = whole_parameter("a", {100}, Init{}, true), b = a, c = a;
  b.name = "b", c.name = "c";
  const std::vector<Unit> units = {{"a", {&a}}, {"b", {&b}}, {"c", {&c}}};
  const FlatLayout layout(units);  // each unit 128 elements
  const std::vector<Range> buckets = {{300, 384}, {256, 300}, {100, 256}, {0, 100}};
  EXPECT_THAT(units_of_buckets(layout, buckets),
              ElementsAre(ElementsAre(2), ElementsAre(2), ElementsAre(0, 1), ElementsAre(0)));
}

}  // namespace
}  // namespace aisc
