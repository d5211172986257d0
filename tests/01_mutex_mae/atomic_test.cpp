// Adding to an atomic number: so that updates are lost, and so that none is.
#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "01_mutex_mae/mae.h"
#include "tests/01_mutex_mae/watched.h"

namespace aisc {
namespace {

double racy(const Problem& problem, Team& team) {
  return without_between([&] { return mae_racy(problem, team); });
}

TEST(MaeRacy, OneThreadLosesNothing) {
  Team alone(1);
  for (const std::int64_t N : awkward_sizes(1, "MaeRacy")) {
    const Problem problem = integer_problem(N, 3);
    ASSERT_EQ(exactly(racy(problem, alone)), exactly(exact_mean(problem)))
        << counted(N, "sample") << ", one thread";
  }
}

// What is lost is lost by chance; what is never right is more than there was to add.
TEST(MaeRacy, ManyThreadsNeverAddTooMuch) {
  for (int T = 2; T <= 9; ++T) {
    Team team(T);
    for (const std::int64_t N : awkward_sizes(T, "MaeRacy")) {
      const Problem problem = integer_problem(N, 3);
      ASSERT_LE(racy(problem, team), exact_mean(problem))
          << counted(N, "sample") << ", " << T
          << " threads: more than the serial mean: does each thread take its chunk alone?";
    }
  }
}

TEST(MaeRacy, ThreadsComputeTheirChunksAtOnce) { expect_chunks("MaeRacy", racy); }

// All threads have loaded the sum before one of them stores: of each T updates one remains. A lock
// around the three steps, or one indivisible addition, would lose nothing.
TEST(MaeRacy, OneOfEachRoundRemainsWhenThreadsAreInStep) {
  for (const int T : {2, 3}) {
    const std::int64_t rounds = drawn("rounds of MaeRacy", 5, 50);
    Problem problem{.N = T * rounds, .M = 0};
    problem.y.assign(static_cast<std::size_t>(problem.N), 4);
    Team team(T);
    Meeting loaded(T);
    std::atomic<std::int64_t> calls = 0;
    const double mean = mae_racy(problem, team, [&] {
      ++calls;
      loaded.wait();
    });
    ASSERT_EQ(calls, problem.N) << "`between` is called once for each sample";
    ASSERT_FALSE(loaded.failed()) << "one thread waits between load and store, and no other comes "
                                     "there: something keeps them out (a lock?)";
    ASSERT_EQ(exactly(mean), exactly(4.0 / T))
        << "each round of " << T << " threads should lose " << counted(T - 1, "update")
        << ": is the sum loaded before `between` and stored after it?";
  }
}

// Thread 0 is between its first load and store while thread 1 stores three times: forgotten. Thread
// 1 is between its last load and store while thread 0 stores three times: forgotten too. Whoever
// stores last, four of the eight updates remain.
TEST(MaeRacy, AStoreForgetsWhatCameSinceItsLoad) {
  const Problem problem{.N = 8, .M = 0, .y = {1, 1, 1, 1, 1, 1, 1, 1}};
  Team team(2);
  const auto number = number_in(team);
  Meeting meeting(2);
  int steps[2] = {0, 0};
  const double mean = mae_racy(problem, team, [&] {
    const int thread = number();
    const int step = ++steps[thread];
    if (step == 1) meeting.wait();                            // both have loaded 0
    if (thread == 0 ? step == 1 : step == 4) meeting.wait();  // thread 1 has stored 3
    if (step == 4) meeting.wait();                            // thread 0 has stored 3
  });
  ASSERT_FALSE(meeting.failed())
      << "a thread waits between load and store, and the other cannot go on: a lock?";
  EXPECT_EQ(steps[0] + steps[1], 8) << "`between` is called once for each sample";
  EXPECT_EQ(exactly(mean), exactly(4.0 / 8))
      << "is it the sum loaded before `between` that is added to?";
}

// Thread 0 adds 1 and 2 before thread 1 has its first error, thread 1 then 4 and 8 before thread 0
// has its last. Their last ones, 32 each, collide: one of them remains.
TEST(MaeRacy, EachSampleIsAddedToWhatOthersHaveStored) {
  Problem problem{.N = 6, .M = 0, .y = {1, 2, 32, 4, 8, 32}};
  Team team(2);
  const auto number = number_in(team);
  Meeting meeting(2);
  int steps[2] = {0, 0};
  problem.watch = [&](std::int64_t i) {
    if (i == 0 || i == 3) meeting.wait();  // both are there
    if (i == 2 || i == 3) meeting.wait();  // thread 0 has stored 1 and 1 + 2
    if (i == 2 || i == 5) meeting.wait();  // thread 1 has stored twice
  };
  const double mean = mae_racy(problem, team, [&] {
    if (++steps[number()] == 3) meeting.wait();  // both have loaded
  });
  ASSERT_FALSE(meeting.failed()) << "one thread waits, and the other cannot go on: a lock?";
  EXPECT_EQ(exactly(mean), exactly((1 + 2 + 4 + 8 + 32) / 6.0))
      << "thread 0 adds 1 and 2, then thread 1 adds 4 and 8, then both add 32 at once: is the sum "
         "loaded anew for each sample, after its error is computed?";
}

// Thrown out of an addition that tries again and again: a test must end.
struct TriesForEver {};
constexpr int kTooMany = 1000;

TEST(AddAtomically, AddsOnce) {
  std::atomic<double> sum = 1.5;
  const auto add = [&](double value) {
    without_between([&] { return add_atomically(sum, value); });
  };
  add(2.25);
  EXPECT_EQ(exactly(sum), exactly(3.75));
  add(-4);
  EXPECT_EQ(exactly(sum), exactly(-0.25));
}

TEST(AddAtomically, TriesAgainFromWhatOthersStored) {
  std::atomic<double> sum = 1;
  int attempts = 0;
  try {
    add_atomically(sum, 10, [&] {
      if (++attempts <= 3) sum.store(sum.load() + 100);  // another thread is faster, three times
      if (attempts > kTooMany) throw TriesForEver();
    });
  } catch (const TriesForEver&) {
    FAIL() << "it tries for ever: is the next attempt made from what is there now?";
  }
  EXPECT_EQ(sum.load(), 311) << "1 + 100 + 100 + 100 + 10: what others store before the own store "
                                "is neither lost nor added twice";
  EXPECT_GE(attempts, 4) << "`between` is called before each attempt to store";
}

TEST(AddAtomically, LeavesTheSumAloneUntilItStores) {
  std::atomic<double> sum = 1;
  add_atomically(sum, 10, [&] { EXPECT_EQ(sum.load(), 1) << "stored before `between`"; });
  EXPECT_EQ(sum.load(), 11);
}

// Two threads have both loaded the sum before one of them stores.
TEST(AddAtomically, TwoThreadsThatMeetLoseNothing) {
  std::atomic<double> sum = 0;
  Team team(2);
  Meeting loaded(2);
  try {
    team.run([&](int t) {
      int attempts = 0;
      add_atomically(sum, t + 1, [&] {
        if (++attempts == 1) loaded.wait();
        if (attempts > kTooMany) throw TriesForEver();
      });
    });
  } catch (const TriesForEver&) {
    FAIL() << "it tries for ever: is the next attempt made from what is there now?";
  }
  EXPECT_EQ(sum.load(), 3) << "one of the two additions, 1 and 2, was lost";
  EXPECT_FALSE(loaded.failed()) << "only one thread at a time could be there: a lock?";
}

double atomic(const Problem& problem, Team& team) {
  return without_between([&] { return mae_atomic(problem, team); });
}

TEST(MaeAtomic, IsExactOnIntegers) { expect_mean("MaeAtomic", atomic); }

TEST(MaeAtomic, ThreadsComputeTheirChunksAtOnce) { expect_chunks("MaeAtomic", atomic); }

TEST(MaeAtomic, AllThreadsAddToOneSum) { expect_one_sum(atomic); }

// All threads are before their first attempt to store, and then each sample has at least one.
TEST(MaeAtomic, AddsEachErrorWithoutALock) {
  for (const int T : {1, 3}) {
    const Problem problem = integer_problem(T * drawn("samples of each thread", 5, 50), 2);
    Team team(T);
    const auto number = number_in(team);
    Meeting loaded(T);
    std::vector<std::int64_t> attempts(static_cast<std::size_t>(T));
    const double mean = mae_atomic(problem, team, [&] {
      if (++attempts[static_cast<std::size_t>(number())] == 1) loaded.wait();
    });
    ASSERT_FALSE(loaded.failed())
        << "a thread waits before it stores, and another one does not come "
           "so far: a lock, or no call of `between`?";
    for (int t = 0; t < T; ++t)
      ASSERT_GE(attempts[static_cast<std::size_t>(t)], problem.N / T)
          << "calls of `between` by thread " << t << " of " << T << ", which has " << problem.N / T
          << " samples: is each of them added by add_atomically(sum, ..., between)?";
    ASSERT_EQ(exactly(mean), exactly(exact_mean(problem))) << T << " threads";
  }
}

}  // namespace
}  // namespace aisc
