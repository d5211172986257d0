// Adding to an atomic number: so that updates are lost, and so that none is.
#include <gtest/gtest.h>

#include <atomic>

#include "01_mutex_mae/mae.h"
#include "tests/01_mutex_mae/watched.h"

namespace aisc {
namespace {

double racy(const Problem& problem, Team& team) { return mae_racy(problem, team); }

TEST(MaeRacy, OneThreadLosesNothing) {
  Team alone(1);
  for (const std::int64_t N : awkward_sizes(1, "MaeRacy")) {
    const Problem problem = integer_problem(N, 3);
    ASSERT_EQ(mae_racy(problem, alone), exact_mean(problem)) << N << " samples, one thread";
  }
}

// What is lost is lost by chance; what is never right is more than there was to add.
TEST(MaeRacy, ManyThreadsNeverAddTooMuch) {
  for (int T = 2; T <= 9; ++T) {
    Team team(T);
    for (const std::int64_t N : awkward_sizes(T, "MaeRacy")) {
      const Problem problem = integer_problem(N, 3);
      ASSERT_LE(mae_racy(problem, team), exact_mean(problem)) << N << " samples, " << T;
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
    ASSERT_EQ(mean, 4.0 / T) << "each round of " << T << " threads should lose " << T - 1
                             << " updates: is the sum loaded before `between` and stored after it?";
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
  EXPECT_EQ(mean, 4.0 / 8) << "is it the sum loaded before `between` that is added to?";
}

// Thrown out of an addition that tries again and again: a test must end.
struct TriesForEver {};
constexpr int kTooMany = 1000;

TEST(AddAtomically, AddsOnce) {
  std::atomic<double> sum = 1.5;
  add_atomically(sum, 2.25);
  EXPECT_EQ(sum.load(), 3.75);
  add_atomically(sum, -4);
  EXPECT_EQ(sum.load(), -0.25);
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

TEST(MaeAtomic, IsExactOnIntegers) { expect_exact_mean("MaeAtomic", mae_atomic); }

TEST(MaeAtomic, AgreesWithALongDoubleSum) { expect_near_mean("MaeAtomic", mae_atomic); }

TEST(MaeAtomic, ThreadsComputeTheirChunksAtOnce) { expect_chunks("MaeAtomic", mae_atomic); }

}  // namespace
}  // namespace aisc
