// The three ways against what one thread draws, number for number.
#include "01_mutex_mae/random.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "01_mutex_mae/problem.h"
#include "common/core/rng.h"
#include "tests/01_mutex_mae/cpu_time.h"
#include "tests/01_mutex_mae/meeting.h"
#include "tests/support/drawn.h"
#include "tests/support/sanitized.h"

namespace aisc {
namespace {

constexpr double kNotFilled = -1;
constexpr std::int64_t kManyNumbers = kSanitized ? 1'000'000 : 4'000'000;
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

using Fill = void (*)(std::span<double>, std::uint64_t, Team&);

void fill_behind_a_mutex(std::span<double> out, std::uint64_t seed, Team& team) {
  CountedMutex mutex;
  fill_locked(out, seed, team, mutex);
}

Numbers filled(Fill fill, std::int64_t n, std::uint64_t seed, int threads) {
  Numbers numbers = empty(n);
  Team team(threads);
  fill(numbers, seed, team);
  return numbers;
}

// The place of the first number that differs, or nothing.
std::string difference(const Numbers& found, const Numbers& expected) {
  if (found.size() != expected.size()) return "another number of numbers";
  for (std::size_t i = 0; i < found.size(); ++i)
    if (found[i] != expected[i])
      return fmt::format("number {} is {} instead of {}", i, found[i], expected[i]);
  return "";
}

// Fills so many numbers that starting and waiting does not count. What else the machine does gets
// three chances to be over.
void expect_shared_out(Fill fill) {
  constexpr int kTries = 3;
  constexpr double kLeastShare = 1.0 / 3;  // of what is a thread's part
  Numbers numbers = empty(kManyNumbers);
  for (const int threads : {2, 3, 4}) {
    Team team(threads);
    std::vector<double> shares;
    for (int k = 0; k < kTries; ++k) {
      shares = cpu_seconds_of(team, [&] { fill(numbers, test_seed(), team); });
      const double all = std::accumulate(shares.begin(), shares.end(), 0.0);
      for (double& share : shares) share /= all;
      if (*std::min_element(shares.begin(), shares.end()) >= kLeastShare / threads) break;
    }
    const auto least = std::min_element(shares.begin(), shares.end());
    ASSERT_GE(*least, kLeastShare / threads)
        << "of the work of " << threads << " threads, thread " << least - shares.begin()
        << " did the part " << *least << ": all threads have to fill";
  }
}

// What all threads compute together is what one computes alone, and not that times the threads.
void expect_done_once(Fill fill) {
  constexpr int kThreads = 8, kTries = 3;
  constexpr double kMost = 4;  // cores that share something slow each other down by up to 2
  Numbers numbers = empty(kManyNumbers);
  Team one(1), team(kThreads);
  double times = 0;
  for (int k = 0; k < kTries && (k == 0 || times > kMost); ++k) {
    const auto seconds = [&](Team& with) {
      const auto each = cpu_seconds_of(with, [&] { fill(numbers, test_seed(), with); });
      return std::accumulate(each.begin(), each.end(), 0.0);
    };
    const double alone = seconds(one);
    times = seconds(team) / alone;
  }
  ASSERT_LE(times, kMost) << kThreads << " threads compute " << times
                          << " times as long as one does alone, all together: does each of them "
                             "fill more than its chunk?";
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
      Numbers found = filled(fill_behind_a_mutex, n, seed, threads),
              expected = drawn_by_one(seed, n);
      std::sort(found.begin(), found.end());
      std::sort(expected.begin(), expected.end());
      if (found != expected)
        FAIL()
            << n << " numbers, sorted, of " << threads << " threads are not the first " << n
            << " of std::mt19937_64(seed): a number is missing, there twice, or left at -1 where "
               "nobody filled it; "
            << difference(found, expected);
    }
  }
}

// Of the numbers that a thread draws, the later ones come further behind in the generator's row.
TEST(FillLocked, FillsEachChunkFromItsFirstElementOn) {
  const std::int64_t n = drawn("numbers of FillLocked, in order", 50, 500);
  const Numbers row = drawn_by_one(test_seed(), n);
  std::map<double, int> place;
  for (const double number : row) place.emplace(number, static_cast<int>(place.size()));
  for (const int threads : {1, 2, 3, 5}) {
    const Numbers found = filled(fill_behind_a_mutex, n, test_seed(), threads);
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

// A thread that comes to its first unlock has drawn one number, and not yet the rest.
TEST(FillLocked, NumbersAreDrawnUnderTheLock) {
  // Of the time in which this test draws all: one number is nothing. The test is not optimized,
  // what it tests may be, and draws all in a third of that time.
  constexpr double kMost = 0.1;
  const std::int64_t n = kManyNumbers / 4;
  Numbers numbers = empty(n);
  Team team(2);
  team.run([](int) {});
  double alone = std::numeric_limits<double>::infinity();  // the best of several, on a busy machine
  for (int round = 0; round < 5; ++round) {
    const double begin = thread_cpu_seconds();
    std::mt19937_64 generator(test_seed());
    for (double& number : numbers) number = uniform(generator);
    alone = std::min(alone, thread_cpu_seconds() - begin);
  }
  const std::thread::id caller = std::this_thread::get_id();
  double first_unlock = -1;
  CountedMutex mutex([&] {
    if (std::this_thread::get_id() == caller && first_unlock < 0)
      first_unlock = thread_cpu_seconds();
  });
  const double start = thread_cpu_seconds();
  fill_locked(numbers, test_seed(), team, mutex);
  ASSERT_GE(first_unlock, 0) << "thread 0 has never unlocked the mutex";
  EXPECT_LT((first_unlock - start) / alone, kMost)
      << "before its first unlock thread 0 computed this part of the time in which it draws all "
         "numbers alone: they are to be drawn one by one, each under the lock";
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
      const Numbers found = filled(fill_per_thread, n, seed, threads);
      for (int t = 0; t < threads; ++t) {
        const Range part = part_of(n, t, threads);
        std::seed_seq words{static_cast<std::uint32_t>(seed & 0xffffffffu),
                            static_cast<std::uint32_t>(seed / kHighWord),
                            static_cast<std::uint32_t>(t)};
        const Numbers expected = drawn_by_one(words, part.end - part.begin);
        EXPECT_EQ(
            difference(Numbers(found.begin() + part.begin, found.begin() + part.end), expected), "")
            << "elements " << part.begin << " .. " << part.end - 1 << " of " << n
            << ", the chunk of thread " << t << " of " << threads;
      }
    }
  }
}

TEST(FillPerThread, NoTwoThreadsDrawTheSameNumbers) {
  const int threads = 6;
  const std::int64_t n = drawn("numbers of FillPerThread, differ", 60, 500);
  Numbers numbers = filled(fill_per_thread, n, test_seed(), threads);
  std::sort(numbers.begin(), numbers.end());
  EXPECT_EQ(std::adjacent_find(numbers.begin(), numbers.end()), numbers.end())
      << "a number is there twice: have two threads the same seed?";
}

TEST(FillPerThread, EachThreadFillsItsChunk) { expect_shared_out(fill_per_thread); }

TEST(FillPerThread, NoThreadFillsMore) { expect_done_once(fill_per_thread); }

TEST(FillCounter, IsPhiloxAtEachElementsIndex) {
  const std::uint64_t seed = test_seed() + 11 * kHighWord;
  const Philox random(seed, "uniform");
  for (const int threads : {1, 2, 3, 5}) {
    for (const std::int64_t n : sizes("numbers of FillCounter", threads)) {
      const Numbers found = filled(fill_counter, n, seed, threads);
      Numbers expected;
      for (std::int64_t i = 0; i < n; ++i)
        expected.push_back(random.uniform(static_cast<std::uint64_t>(i)));
      ASSERT_EQ(difference(found, expected), "") << "of " << n << ", " << threads << " threads";
    }
  }
}

TEST(FillCounter, IsTheSameForEveryTeam) {
  const std::int64_t n = drawn("numbers of FillCounter, teams", 50, 500);
  const Numbers alone = filled(fill_counter, n, test_seed(), 1);
  for (int threads = 2; threads <= 9; ++threads)
    EXPECT_EQ(difference(filled(fill_counter, n, test_seed(), threads), alone), "")
        << threads << " threads";
}

TEST(FillCounter, EachThreadFillsItsChunk) { expect_shared_out(fill_counter); }

TEST(FillCounter, NoThreadFillsMore) { expect_done_once(fill_counter); }

}  // namespace
}  // namespace aisc
