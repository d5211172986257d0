// One thread, several that add to one number without losing any, and a private sum for each.
#include "01_mutex_mae/mae.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/01_mutex_mae/watched.h"

namespace aisc {
namespace {

// `size` says how many samples there are.
void expect_chunk(std::int64_t N, int thread, int threads, Range expected,
                  const std::string& size) {
  const Range found = chunk(N, thread, threads);
  const std::string who =
      size + ", " + counted(threads, "thread") + ": thread " + std::to_string(thread) + "'s chunk ";
  ASSERT_EQ(found.begin, expected.begin)
      << who << "begins at " << found.begin << ", expected " << expected.begin;
  ASSERT_EQ(found.end, expected.end)
      << who << "ends at " << found.end << ", expected " << expected.end;
}

TEST(Chunk, IsRoundedDownAtBothEnds) {
  const std::vector<Range> four = {{0, 2}, {2, 5}, {5, 7}, {7, 10}};  // 10 samples: 2.5 each
  for (int t = 0; t < 4; ++t) {
    expect_chunk(10, t, 4, four[static_cast<std::size_t>(t)], "10 samples");
    if (HasFatalFailure()) return;
  }
}

TEST(Chunk, ChunksTogetherAreAllSamplesInOrder) {
  for (int T = 1; T <= 9; ++T)
    for (const std::int64_t N : awkward_sizes(T, "Chunk")) {
      std::int64_t next = 0;
      for (int t = 0; t < T; ++t) {
        const Range samples = chunk(N, t, T);
        ASSERT_EQ(samples.begin, next)
            << counted(N, "sample") << ", " << counted(T, "thread") << ": thread " << t
            << " does not begin where the one before it ends (thread 0: at 0)";
        ASSERT_LE(samples.begin, samples.end)
            << counted(N, "sample") << ", " << counted(T, "thread") << ": thread " << t
            << " begins behind its end";
        next = samples.end;
      }
      ASSERT_EQ(next, N) << counted(N, "sample") << ", " << counted(T, "thread")
                         << ": the last thread does not end behind the last sample";
    }
}

TEST(Chunk, LengthsDifferByOneAtMost) {
  for (int T = 1; T <= 9; ++T)
    for (const std::int64_t N : awkward_sizes(T, "Chunk"))
      for (int t = 0; t < T; ++t) {
        const Range samples = chunk(N, t, T);
        ASSERT_GE(samples.end - samples.begin, N / T)
            << counted(N, "sample") << ", " << counted(T, "thread") << ": thread " << t
            << " has too few";
        ASSERT_LE(samples.end - samples.begin, (N + T - 1) / T)
            << counted(N, "sample") << ", " << counted(T, "thread") << ": thread " << t
            << " has too many";
      }
}

TEST(Chunk, SamplesMayBeMoreThanAnIntHolds) {
  constexpr std::int64_t kMany = std::int64_t{7} << 40;
  expect_chunk(kMany, 6, 7, {std::int64_t{6} << 40, kMany}, "7 * 2^40 samples");
}

// 1.0 / 49 * 49 is less than 1, and a double has 53 bits.
TEST(Chunk, IsExactWhereFloatingPointIsNot) {
  for (int T = 1; T <= 200; ++T)
    for (int t = 0; t < T; ++t) {
      expect_chunk(3 * T, t, T, {3 * t, 3 * t + 3}, counted(3 * T, "sample"));
      if (HasFatalFailure()) return;
    }
  constexpr std::int64_t kMany = (std::int64_t{1} << 58) + 3;  // rounded to F64: without the 3
  const std::string size = "2^58 + 3 samples";
  expect_chunk(kMany, 1, 3, {kMany / 3, 2 * (kMany / 3)}, size);
  expect_chunk(kMany, 2, 3, {2 * (kMany / 3), kMany}, size);
}

double serial(const Problem& problem, Team&) { return mae_serial(problem); }

TEST(MaeSerial, IsTheMeanByHand) {
  Problem problem{.N = 3, .M = 1, .x = {1, 2, 3}, .y = {7, 5, 0}, .w = {2}, .b = 1};
  std::string outside;
  problem.watch = [&](std::int64_t i) {
    if (outside.empty() && (i < 0 || i >= 3))
      outside = "sample " + std::to_string(i) + " was asked for";
  };
  const double mean = mae_serial(problem);  // |3 - 7| + |5 - 5| + |7 - 0|
  ASSERT_EQ(outside, "") << outside << ", expected are 0, 1 and 2 alone";
  EXPECT_EQ(exactly(mean), exactly(11.0 / 3))
      << "the mean of errors 4, 0 and 7: found " << exactly(mean) << ", expected 11/3";
}

TEST(MaeSerial, IsExactOnIntegers) { expect_mean("MaeSerial", serial, SumOf::OneThread); }

TEST(MaeSerial, IsZeroWithoutSamples) {
  EXPECT_EQ(mae_serial(make_problem(0, 4)), 0) << "N = 0: the result is 0, not 0 / 0";
}

TEST(MaeSerial, AsksForEachErrorOnceInOrder) {
  const std::int64_t N = drawn("samples of MaeSerial", 50, 500);
  Problem problem = integer_problem(N, 2);
  const Watched watched(problem, 1, [] { return 0; });
  mae_serial(problem);
  watched.expect_shares({{0, N}});
}

double mutex(const Problem& problem, Team& team) {
  CountedMutex mutex;
  return mae_mutex(problem, team, mutex);
}

TEST(MaeMutex, IsExactOnIntegers) { expect_mean("MaeMutex", mutex); }

TEST(MaeMutex, ThreadsComputeTheirChunksAtOnce) { expect_chunks("MaeMutex", mutex); }

TEST(MaeMutex, LocksOnceForEachSample) {
  for (const int T : {1, 3, 7})
    for (const std::int64_t N : awkward_sizes(T, "MaeMutex")) {
      Team team(T);
      CountedMutex mutex;
      mae_mutex(integer_problem(N, 1), team, mutex);
      ASSERT_EQ(mutex.locks(), N) << "`mutex` must be locked once for each of " << N << " samples, "
                                  << T << " threads";
    }
}

// One thread: when it asks for error i, it has locked for the errors before and not for this one.
TEST(MaeMutex, ErrorsAreComputedOutsideTheLock) {
  Problem problem = integer_problem(20, 2);
  CountedMutex mutex;
  std::int64_t asked = 0;
  problem.watch = [&](std::int64_t i) {
    EXPECT_EQ(mutex.locks(), asked++)
        << "the error of sample " << i << " is computed under the lock: everyone waits for it";
  };
  Team team(1);
  mae_mutex(problem, team, mutex);
}

// After each unlock a thread waits until the others have unlocked too. Whatever is done to the sum
// outside the lock is then done by all at the same time.
void expect_nothing_lost_when_others_follow(int threads,
                                            double (*sum)(const Problem&, Team&, CountedMutex&)) {
  const Problem problem{.N = 6, .M = 0, .y = {1, 2, 3, 4, 5, 6}};
  Team team(threads);
  Meeting unlocked(threads);
  CountedMutex mutex([&] { unlocked.wait(); });
  EXPECT_EQ(exactly(sum(problem, team, mutex)), exactly(21.0 / 6))
      << "an addition was lost: the lock does not last from the load of the sum to its store";
  EXPECT_FALSE(unlocked.failed()) << "the " << threads << " threads did not unlock equally often";
}

TEST(MaeMutex, LosesNothingWhenTheOtherRunsAfterTheUnlock) {
  expect_nothing_lost_when_others_follow(2, mae_mutex);
}

TEST(MaeMutex, LosesNothingWhenBothUnlockAtOnce) { expect_nothing_lost_after_unlock(mae_mutex); }

TEST(MaeMutex, AllThreadsAddToOneSum) { expect_one_sum(mutex); }

double reduction(const Problem& problem, Team& team) {
  CountedMutex mutex;
  return mae_reduction(problem, team, mutex);
}

TEST(MaeReduction, IsExactOnIntegers) { expect_mean("MaeReduction", reduction); }

TEST(MaeReduction, ThreadsComputeTheirChunksAtOnce) { expect_chunks("MaeReduction", reduction); }

TEST(MaeReduction, LocksOnceForEachThread) {
  for (const int T : {1, 3, 7})
    for (const std::int64_t N : awkward_sizes(T, "MaeReduction")) {
      Team team(T);
      CountedMutex mutex;
      mae_reduction(integer_problem(N, 1), team, mutex);
      ASSERT_EQ(mutex.locks(), T) << "`mutex` must be locked once by each of " << T << " threads, "
                                  << "also by one that has none of the " << N << " samples";
    }
}

TEST(MaeReduction, LocksAfterTheLastErrorOnly) {
  Problem problem = integer_problem(20, 2);
  CountedMutex mutex;
  problem.watch = [&](std::int64_t i) {
    EXPECT_EQ(mutex.locks(), 0) << "locked before the error of sample " << i << " was asked for";
  };
  Team team(1);
  mae_reduction(problem, team, mutex);
}

TEST(MaeReduction, LosesNothingWhenTheOthersRunAfterTheUnlock) {
  expect_nothing_lost_when_others_follow(3, mae_reduction);
}

TEST(MaeReduction, LosesNothingWhenBothUnlockAtOnce) {
  expect_nothing_lost_after_unlock(mae_reduction);
}

TEST(MaeReduction, EachThreadHasASumOfItsOwn) { expect_own_sums(reduction); }

}  // namespace
}  // namespace aisc
