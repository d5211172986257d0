// Sums side by side: where each lies in memory, and that it is written with every error.
#include "01_mutex_mae/partial_sums.h"

#include <gtest/gtest.h>

#include <cstdint>

#include "tests/01_mutex_mae/watched.h"
#include "tests/support/message_of.h"

namespace aisc {
namespace {

constexpr Layout kLayouts[] = {Layout::Packed, Layout::Padded};

const char* name(Layout layout) { return layout == Layout::Packed ? "packed" : "padded"; }

std::uintptr_t address(PartialSums& sums, int thread) {
  return reinterpret_cast<std::uintptr_t>(&sums.of(thread));
}

TEST(PartialSumsMade, NoThreadsAreRefused) {
  EXPECT_EQ(message_of([] { PartialSums(0, Layout::Packed); }),
            "partial sums: 0 threads: at least 1 is needed");
  EXPECT_EQ(message_of([] { PartialSums(-1, Layout::Padded); }),
            "partial sums: -1 threads: at least 1 is needed");
}

TEST(PartialSumsMade, BeginWithZero) {
  for (const Layout layout : kLayouts) {
    EXPECT_EQ(PartialSums(19, layout).total(), 0);
    EXPECT_EQ(PartialSums(19, layout).threads(), 19);
  }
}

TEST(PartialSums, PackedSumsAreEightBytesApart) {
  PartialSums sums(19, Layout::Packed);
  EXPECT_EQ(address(sums, 0) % kCacheLineBytes, 0u);
  for (int t = 1; t < 19; ++t)
    ASSERT_EQ(address(sums, t), address(sums, t - 1) + 8) << "sums " << t - 1 << " and " << t;
}

TEST(PartialSums, PaddedSumsAreEachAtTheBeginningOfALineOfItsOwn) {
  PartialSums sums(19, Layout::Padded);
  for (int t = 0; t < 19; ++t) {
    ASSERT_EQ(address(sums, t) % kCacheLineBytes, 0u) << "sum " << t << " is within a line";
    for (int other = 0; other < t; ++other)
      ASSERT_NE(address(sums, t) / kCacheLineBytes, address(sums, other) / kCacheLineBytes)
          << "sums " << other << " and " << t << " are in one cache line";
  }
}

TEST(PartialSums, TotalFindsThemAll) {
  for (const Layout layout : kLayouts)
    for (const int T : {1, 7, 8, 9, 19}) {
      PartialSums sums(T, layout);
      for (int t = 0; t < T; ++t) {
        ASSERT_EQ(sums.of(t).load(), 0) << "sum " << t << " before anybody added to it";
        sums.of(t).store(t + 1);
      }
      EXPECT_EQ(sums.total(), T * (T + 1) / 2) << T << " sums, " << name(layout);
    }
}

TeamSum with_layout(Layout layout) {
  return [layout](const Problem& problem, Team& team) {
    PartialSums sums(team.size(), layout);
    return mae_partial_sums(problem, team, sums);
  };
}

TEST(MaePartialSums, IsExactOnIntegers) {
  for (const Layout layout : kLayouts) expect_mean("MaePartialSums", with_layout(layout));
}

TEST(MaePartialSums, ThreadsComputeTheirChunksAtOnce) {
  expect_chunks("MaePartialSums", with_layout(Layout::Packed));
}

// When thread t asks for an error, all those that it asked for before are in sums.of(t), with what
// was there at first.
TEST(MaePartialSums, EachErrorIsAddedToMemoryAtOnce) {
  constexpr int kThreads = 3;
  Problem problem = integer_problem(drawn("samples of MaePartialSums", 50, 500), 2);
  Team team(kThreads);
  PartialSums sums(kThreads, Layout::Padded);
  const auto number = number_in(team);
  double before[kThreads] = {1000, 2000, 3000};
  for (int t = 0; t < kThreads; ++t) sums.of(t) = before[t];
  problem.watch = [&](std::int64_t i) {
    const int thread = number();
    EXPECT_EQ(exactly(sums.of(thread)), exactly(before[thread]))
        << "the sum of thread " << thread << " in memory when it asks for sample " << i
        << ": is it kept somewhere else until the end?";
    before[thread] += static_cast<double>(exact_error(problem, i));
  };
  mae_partial_sums(problem, team, sums);
  for (int t = 0; t < kThreads; ++t)
    EXPECT_EQ(exactly(sums.of(t)), exactly(before[t]))
        << "the sum of thread " << t << " at the end";
}

TEST(MaePartialSums, ReturnsWhatWasAddedThisTime) {
  const Problem problem = integer_problem(30, 2);
  Team team(4);
  PartialSums sums(4, Layout::Packed);
  for (int times = 1; times <= 3; ++times) {
    ASSERT_EQ(exactly(mae_partial_sums(problem, team, sums)), exactly(exact_mean(problem)))
        << "call " << times;
    ASSERT_EQ(exactly(sums.total()), exactly(times * exact_sum(problem))) << "call " << times;
  }
}

TEST(MaePartialSums, SumsForAnotherNumberOfThreadsAreRefused) {
  Team team(3);
  for (const int count : {2, 4}) {
    PartialSums sums(count, Layout::Packed);
    const std::string message =
        message_of([&] { mae_partial_sums(integer_problem(9, 1), team, sums); });
    EXPECT_NE(message, "") << count << " sums for a team of 3: this must throw an Error";
    EXPECT_EQ(sums.total(), 0);
  }
}

}  // namespace
}  // namespace aisc
