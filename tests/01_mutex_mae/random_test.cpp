// The three ways against what one thread draws, number for number.
#include "01_mutex_mae/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <vector>

#include "01_mutex_mae/problem.h"
#include "common/core/rng.h"
#include "tests/01_mutex_mae/meeting.h"
#include "tests/support/drawn.h"

namespace aisc {
namespace {

constexpr double kNotFilled = -1;
constexpr std::uint64_t kHighWord = std::uint64_t{1} << 32;

using Numbers = std::vector<double>;

Numbers empty(std::int64_t n) { return Numbers(static_cast<std::size_t>(n), kNotFilled); }

// What `count` calls of a generator give, written out once more.
template <class Seed>
Numbers drawn_by_one(Seed&& seed, std::int64_t count) {
  std::mt19937_64 generator(seed);
  Numbers numbers = empty(count);
  for (double& number : numbers) number = static_cast<double>(generator() >> 11) / 9007199254740992;
  return numbers;
}

Range part_of(std::int64_t n, int thread, int threads) {
  return {n * thread / threads, n * (thread + 1) / threads};
}

// Sizes around the number of threads, and one that is drawn.
std::vector<std::int64_t> sizes(const char* suite, int threads) {
  return {0, 1, threads - 1, threads, threads + 1, drawn(suite, 50, 500)};
}

Numbers locked(std::int64_t n, std::uint64_t seed, int threads) {
  Numbers numbers = empty(n);
  Team team(threads);
  CountedMutex mutex;
  fill_locked(numbers, seed, team, mutex);
  return numbers;
}

Numbers per_thread(std::int64_t n, std::uint64_t seed, int threads) {
  Numbers numbers = empty(n);
  Team team(threads);
  fill_per_thread(numbers, seed, team);
  return numbers;
}

Numbers counter(std::int64_t n, std::uint64_t seed, int threads) {
  Numbers numbers = empty(n);
  Team team(threads);
  fill_counter(numbers, seed, team);
  return numbers;
}

TEST(Uniform, IsTheUpper53BitsBelowOne) {
  std::mt19937_64 one(5), other(5);
  for (int k = 0; k < 100; ++k) {
    const double number = uniform(one);
    EXPECT_EQ(number, static_cast<double>(other() >> 11) / 9007199254740992);
    EXPECT_GE(number, 0);
    EXPECT_LT(number, 1);
  }
}

TEST(FillLocked, GivesTheNumbersOfOneThreadAsASet) {
  const std::uint64_t seed = test_seed() + 7 * kHighWord;
  for (const int threads : {1, 2, 3, 4}) {
    for (const std::int64_t n : sizes("numbers of FillLocked", threads)) {
      Numbers found = locked(n, seed, threads), expected = drawn_by_one(seed, n);
      std::sort(found.begin(), found.end());
      std::sort(expected.begin(), expected.end());
      EXPECT_EQ(found, expected) << n << " numbers, sorted, of " << threads
                                 << " threads are not the first " << n
                                 << " of std::mt19937_64(seed): a number is missing, there twice, "
                                    "or left at -1 where nobody filled it";
    }
  }
}

TEST(FillLocked, OneThreadGivesThemInOrder) {
  const std::int64_t n = drawn("numbers of FillLocked, one thread", 50, 500);
  EXPECT_EQ(locked(n, 3, 1), drawn_by_one(3, n));
}

// Of the numbers that a thread draws, the later ones come further behind in the generator's row.
TEST(FillLocked, FillsEachChunkFromItsFirstElementOn) {
  const std::int64_t n = drawn("numbers of FillLocked, in order", 50, 500);
  const Numbers row = drawn_by_one(test_seed(), n);
  std::map<double, int> place;
  for (const double number : row) place.emplace(number, static_cast<int>(place.size()));
  for (const int threads : {2, 3, 5}) {
    const Numbers found = locked(n, test_seed(), threads);
    for (int t = 0; t < threads; ++t) {
      const Range part = part_of(n, t, threads);
      for (std::int64_t i = part.begin + 1; i < part.end; ++i) {
        const double before = found[static_cast<std::size_t>(i - 1)];
        const double number = found[static_cast<std::size_t>(i)];
        ASSERT_TRUE(place.contains(before) && place.contains(number))
            << "element " << i - 1 << " or " << i << " is no number of std::mt19937_64(seed)";
        ASSERT_LT(place[before], place[number])
            << "thread " << t << " of " << threads << " drew element " << i
            << " of its chunk before element " << i - 1;
      }
    }
  }
}

TEST(FillLocked, LocksOnceForEachNumber) {
  for (const int threads : {1, 2, 4}) {
    for (const std::int64_t n : sizes("numbers of FillLocked, locks", threads)) {
      Numbers numbers = empty(n);
      Team team(threads);
      CountedMutex mutex;
      fill_locked(numbers, 1, team, mutex);
      EXPECT_EQ(mutex.locks(), n) << threads << " threads, " << n << " numbers";
    }
  }
}

// After its first unlock each thread waits until every other has locked and unlocked, too.
TEST(FillLocked, AllThreadsDrawAndNoneKeepsTheLock) {
  for (const int threads : {2, 4}) {
    Numbers numbers = empty(drawn("numbers of FillLocked, at once", 50, 500));
    Team team(threads);
    Gathering meeting(threads);
    CountedMutex mutex([&] { meeting.arrive(); });
    fill_locked(numbers, 1, team, mutex);
    ASSERT_EQ(meeting.present(), threads)
        << meeting.present() << " of " << threads
        << " threads unlocked the mutex: all of them must draw numbers, and none of them may wait "
           "for another one to be done";
  }
}

TEST(FillPerThread, IsEachThreadsOwnGeneratorInItsChunk) {
  const std::uint64_t seed = test_seed() + 9 * kHighWord;
  for (const int threads : {1, 2, 3, 5}) {
    for (const std::int64_t n : sizes("numbers of FillPerThread", threads)) {
      const Numbers found = per_thread(n, seed, threads);
      for (int t = 0; t < threads; ++t) {
        const Range part = part_of(n, t, threads);
        std::seed_seq words{static_cast<std::uint32_t>(seed & 0xffffffffu),
                            static_cast<std::uint32_t>(seed / kHighWord),
                            static_cast<std::uint32_t>(t)};
        const Numbers expected = drawn_by_one(words, part.end - part.begin);
        EXPECT_EQ(Numbers(found.begin() + part.begin, found.begin() + part.end), expected)
            << "elements " << part.begin << " .. " << part.end - 1 << " of " << n
            << ", the chunk of thread " << t << " of " << threads;
      }
    }
  }
}

TEST(FillPerThread, NoTwoThreadsDrawTheSameNumbers) {
  const int threads = 6;
  const std::int64_t n = drawn("numbers of FillPerThread, differ", 60, 500);
  Numbers numbers = per_thread(n, test_seed(), threads);
  std::sort(numbers.begin(), numbers.end());
  EXPECT_EQ(std::adjacent_find(numbers.begin(), numbers.end()), numbers.end())
      << "a number is there twice: have two threads the same seed?";
}

TEST(FillPerThread, BothWordsOfTheSeedMatter) {
  EXPECT_NE(per_thread(20, 1, 2), per_thread(20, 2, 2)) << "seeds 1 and 2 give the same numbers";
  EXPECT_NE(per_thread(20, 1, 2), per_thread(20, 1 + kHighWord, 2))
      << "seeds 1 and 2^32 + 1 give the same numbers: the high word of the seed is not used";
}

TEST(FillPerThread, IsTheSameInEveryRun) {
  const std::int64_t n = drawn("numbers of FillPerThread, again", 50, 500);
  EXPECT_EQ(per_thread(n, test_seed(), 3), per_thread(n, test_seed(), 3));
}

TEST(FillCounter, IsPhiloxAtEachElementsIndex) {
  const std::uint64_t seed = test_seed() + 11 * kHighWord;
  const Philox random(seed, "uniform");
  for (const int threads : {1, 2, 3, 5}) {
    for (const std::int64_t n : sizes("numbers of FillCounter", threads)) {
      const Numbers found = counter(n, seed, threads);
      for (std::int64_t i = 0; i < n; ++i)
        ASSERT_EQ(found[static_cast<std::size_t>(i)], random.uniform(static_cast<std::uint64_t>(i)))
            << "element " << i << " of " << n << ", " << threads << " threads";
    }
  }
}

TEST(FillCounter, IsTheSameForEveryTeam) {
  const std::int64_t n = drawn("numbers of FillCounter, teams", 50, 500);
  const Numbers alone = counter(n, test_seed(), 1);
  for (int threads = 2; threads <= 9; ++threads)
    EXPECT_EQ(counter(n, test_seed(), threads), alone) << threads << " threads";
}

TEST(FillCounter, DoesNotDependOnHowManyAreAskedFor) {
  const std::int64_t n = drawn("numbers of FillCounter, fewer", 50, 500);
  const Numbers all = counter(n, test_seed(), 2);
  for (const std::int64_t fewer : {n - 1, n / 2, n / 3})
    EXPECT_EQ(counter(fewer, test_seed(), 3), Numbers(all.begin(), all.begin() + fewer))
        << "the first " << fewer << " of " << n;
}

}  // namespace
}  // namespace aisc
