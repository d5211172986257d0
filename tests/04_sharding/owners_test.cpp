// Which rank owns which unit: by hand, at every size, and how far from the best choice.
#include "04_sharding/owners.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/drawn.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

using Counts = std::vector<std::int64_t>;
using Ranks = std::vector<int>;

std::int64_t most_of(const Counts& counts, const Ranks& owners, int ranks) {
  Counts elements(static_cast<std::size_t>(ranks));
  for (std::size_t u = 0; u < counts.size(); ++u)
    elements[static_cast<std::size_t>(owners[u])] += counts[u];
  return *std::max_element(elements.begin(), elements.end());
}

// So many units, of up to `largest` elements each.
Counts drawn_counts(const std::string& name, std::int64_t units, std::int64_t largest) {
  Counts counts;
  for (std::int64_t u = 0; u < units; ++u)
    counts.push_back(drawn(fmt::format("{} unit {}", name, u), 1, largest));
  return counts;
}

// Which of equal numbers a choice takes.
enum class Take { First, Last };

// To the rank with the fewest elements so far, counted anew each time, the unit that `pick` names
// of those that have no owner (-1).
template <class Pick>
Ranks dealt(const Counts& counts, int ranks, Take of_equal_ranks, Pick pick) {
  Ranks owners(counts.size(), -1);
  for (std::size_t n = 0; n < counts.size(); ++n) {
    const std::size_t unit = pick(owners);
    std::int64_t fewest = -1;
    int to = 0;
    for (int r = 0; r < ranks; ++r) {
      std::int64_t has = 0;
      for (std::size_t u = 0; u < counts.size(); ++u)
        if (owners[u] == r) has += counts[u];
      if (fewest >= 0 && (has > fewest || (has == fewest && of_equal_ranks == Take::First)))
        continue;
      fewest = has, to = r;
    }
    owners[unit] = to;
  }
  return owners;
}

Ranks largest_first(const Counts& counts, int ranks, Take of_equal_units = Take::First,
                    Take of_equal_ranks = Take::First) {
  return dealt(counts, ranks, of_equal_ranks, [&](const Ranks& owners) {
    std::size_t largest = counts.size();
    for (std::size_t u = 0; u < counts.size(); ++u) {
      if (owners[u] >= 0) continue;
      if (largest == counts.size() || counts[u] > counts[largest] ||
          (counts[u] == counts[largest] && of_equal_units == Take::Last))
        largest = u;
    }
    return largest;
  });
}

Ranks in_the_models_order(const Counts& counts, int ranks) {
  return dealt(counts, ranks, Take::First, [](const Ranks& owners) {
    return static_cast<std::size_t>(std::find(owners.begin(), owners.end(), -1) - owners.begin());
  });
}

Ranks in_turn(const Counts& counts, int ranks) {
  Ranks owners;
  for (std::size_t u = 0; u < counts.size(); ++u)
    owners.push_back(static_cast<int>(u) % std::max(ranks, 1));
  return owners;
}

// What owners_of makes of these sizes, and the usual cause where it is something else.
::testing::AssertionResult owners_are(const Counts& counts, int ranks, const Ranks& expected) {
  const Ranks found = owners_of(counts, ranks);
  if (found == expected) return ::testing::AssertionSuccess();
  auto failure =
      ::testing::AssertionFailure() << fmt::format(
          "units of {} elements over {} ranks: the owners are {}, expected {}.",
          fmt::join(counts, " "), ranks, fmt::join(found, " "), fmt::join(expected, " "));
  const std::pair<Ranks, const char*> mistakes[] = {
      {in_the_models_order(counts, ranks), "the units came in the model's order, not by size"},
      {in_turn(counts, ranks), "the ranks came in turn, however much they have"},
      {largest_first(counts, ranks, Take::Last), "of equal units the last came first"},
      {largest_first(counts, ranks, Take::First, Take::Last),
       "of ranks with as many elements the highest was taken"}};
  if (found.size() != expected.size())
    return failure << "\nEach unit has one owner: the result is by unit.";
  for (const auto& [owners, why] : mistakes)
    if (found == owners) return failure << "\nIt is as if " << why << ".";
  return failure;
}

// The 7 goes to rank 0, the 5 to rank 1. Rank 1 has fewer, and gets the 3, too: 7 and 8. The 2 goes
// to rank 0, which ends with 9, rank 1 with 8.
TEST(Owners, OfFourUnitsByHand) { EXPECT_TRUE(owners_are({2, 7, 3, 5}, 2, {0, 0, 1, 1})); }

TEST(Owners, OfEqualUnitsAndRanksTheLowestIsFirst) {
  EXPECT_TRUE(owners_are({4, 4, 4}, 2, {0, 1, 0}));
  EXPECT_TRUE(owners_are({3, 6, 3, 6}, 4, {2, 0, 3, 1}));
}

TEST(Owners, OfOneRankAndOfMoreRanksThanUnits) {
  EXPECT_TRUE(owners_are({5, 9, 1}, 1, {0, 0, 0}));
  EXPECT_TRUE(owners_are({5, 6}, 4, {1, 0})) << "ranks 2 and 3 own nothing";
  EXPECT_TRUE(owners_are({}, 3, {}));
}

// Small numbers, so that many are equal.
TEST(Owners, OfAnySizesAndRanks) {
  for (int i = 0; i < 200; ++i) {
    const std::string name = fmt::format("owners {}", i);
    const int ranks = static_cast<int>(drawn(name + " ranks", 1, 9));
    const Counts counts =
        drawn_counts(name, drawn(name + " units", 0, 20), drawn(name + " largest", 1, 30));
    ASSERT_TRUE(owners_are(counts, ranks, largest_first(counts, ranks)));
  }
}

// The bound is reached: 3 + 2 + 2 and 3 + 2, where 3 + 3 and 2 + 2 + 2 are possible. 7/6 is 4/3 -
// 1/(3 * 2).
TEST(Owners, AtWorstAreAsFarFromTheBestAsTheBoundSays) {
  const Counts counts = {3, 3, 2, 2, 2};
  EXPECT_TRUE(owners_are(counts, 2, {0, 1, 0, 1, 0}));
  EXPECT_EQ(most_of(counts, owners_of(counts, 2), 2), 7);
}

// The most that a rank has at least, of all choices there are.
std::int64_t best(const Counts& counts, int ranks) {
  std::int64_t least = 0;
  for (const std::int64_t count : counts) least += count;
  Ranks owners(counts.size());
  for (;;) {
    least = std::min(least, most_of(counts, owners, ranks));
    std::size_t u = 0;
    while (u < owners.size() && ++owners[u] == ranks) owners[u++] = 0;
    if (u == owners.size()) return least;
  }
}

TEST(Owners, AreNeverFartherFromTheBest) {
  for (int i = 0; i < 60; ++i) {
    const std::string name = fmt::format("owners bound {}", i);
    const int ranks = static_cast<int>(drawn(name + " ranks", 2, 4));
    const Counts counts = drawn_counts(name, drawn(name + " units", 1, 7), 40);
    const Ranks owners = owners_of(counts, ranks);
    ASSERT_EQ(owners.size(), counts.size());
    const std::int64_t most = most_of(counts, owners, ranks), least = best(counts, ranks);
    EXPECT_LE(3 * ranks * most, (4 * ranks - 1) * least)
        << fmt::format("units of {} elements over {} ranks: one has {}, {} is possible",
                       fmt::join(counts, " "), ranks, most, least);
  }
}

TEST(OwnersGiven, NeedARank) {
  const Counts counts = {1};
  EXPECT_TRUE(error_says([&] { owners_of(counts, 0); }, {"owners: 0 ranks", "1 or more"}));
}

}  // namespace
}  // namespace aisc
