// The threads and the mutex that are given.
#include "01_mutex_mae/team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/01_mutex_mae/meeting.h"
#include "tests/support/message_of.h"

namespace aisc {
namespace {

using Ids = std::vector<std::thread::id>;

Ids ids_of(Team& team) {
  Ids ids(static_cast<std::size_t>(team.size()));
  team.run([&](int t) { ids[static_cast<std::size_t>(t)] = std::this_thread::get_id(); });
  return ids;
}

TEST(Team, RunsTheBodyOnAllThreadsAtOnce) {
  for (const int T : {1, 2, 3, 8}) {
    Team team(T);
    EXPECT_EQ(team.size(), T);
    Meeting meeting(T);
    std::vector<int> calls(static_cast<std::size_t>(T));
    team.run([&](int t) {
      meeting.wait();
      ++calls[static_cast<std::size_t>(t)];
    });
    EXPECT_FALSE(meeting.failed());
    EXPECT_EQ(calls, std::vector<int>(static_cast<std::size_t>(T), 1));
  }
}

TEST(Team, ThreadsAreTheSameInEachRunAndTheCallerIsTheFirst) {
  Team team(4);
  const Ids ids = ids_of(team);
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  for (std::size_t a = 0; a < 4; ++a)
    for (std::size_t b = a + 1; b < 4; ++b) EXPECT_NE(ids[a], ids[b]);
  EXPECT_EQ(ids_of(team), ids);
}

// Some follow at once, when the others still look for work; some when they sleep.
TEST(Team, ManyRunsEachReturnWhenAllAreDone) {
  for (const int T : {2, 5}) {
    Team team(T);
    std::vector<int> counts(static_cast<std::size_t>(T));  // not atomic: a run orders them
    for (int run = 1; run <= 300; ++run) {
      if (run % 100 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      team.run([&](int t) { ++counts[static_cast<std::size_t>(t)]; });
      ASSERT_EQ(counts, std::vector<int>(static_cast<std::size_t>(T), run));
    }
  }
}

TEST(Team, MayBeMadeForNothing) {
  for (int k = 0; k < 20; ++k) Team team(4);
}

TEST(Team, TwoTeamsRunOneInTheOther) {
  Team outer(2), inner(3);
  std::atomic<int> calls = 0;
  outer.run([&](int t) {
    if (t == 1) inner.run([&](int) { ++calls; });
  });
  EXPECT_EQ(calls, 3);
}

TEST(Team, ThrowsWhatTheLowestThreadThrewWhenAllAreDone) {
  Team team(5);
  std::atomic<int> finished = 0;
  std::string caught;
  try {
    team.run([&](int t) {
      if (t == 2 || t == 4) throw std::runtime_error("thread " + std::to_string(t));
      ++finished;
    });
  } catch (const std::runtime_error& error) {
    caught = error.what();
  }
  EXPECT_EQ(caught, "thread 2");
  EXPECT_EQ(finished, 3);
  finished = 0;
  team.run([&](int) { ++finished; });  // the failure is forgotten
  EXPECT_EQ(finished, 5);
}

TEST(Team, ARunWithinARunIsRefused) {
  for (const int runner : {0, 2}) {
    Team team(3);
    const std::string message = message_of([&] {
      team.run([&](int t) {
        if (t == runner) team.run([](int) {});
      });
    });
    EXPECT_EQ(message, "team: run() was called from within a run of the same team");
    EXPECT_EQ(ids_of(team).size(), 3u);  // and the team goes on
  }
}

TEST(Team, NoThreadsAreRefused) {
  EXPECT_EQ(message_of([] { Team(0); }), "team: 0 threads: at least 1 is needed");
  EXPECT_EQ(message_of([] { Team(-3); }), "team: -3 threads: at least 1 is needed");
}

TEST(CountedMutex, CountsLocksAndLetsOneInAtATime) {
  CountedMutex mutex;
  Team team(4);
  int count = 0;
  team.run([&](int) {
    for (int k = 0; k < 250; ++k) {
      const std::lock_guard lock(mutex);
      ++count;
    }
  });
  EXPECT_EQ(count, 1000);
  EXPECT_EQ(mutex.locks(), 1000);
}

TEST(CountedMutex, TellsThatItIsUnlockedWhenItIs) {
  CountedMutex* again = nullptr;
  int told = 0;
  CountedMutex mutex([&] {
    if (++told > 1) return;
    again->lock();  // would wait for ever for itself if it were still locked
    again->unlock();
  });
  again = &mutex;
  { const std::lock_guard lock(mutex); }
  EXPECT_EQ(told, 2);
  EXPECT_EQ(mutex.locks(), 2);
}

}  // namespace
}  // namespace aisc
