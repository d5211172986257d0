// Problems whose errors a person can check, and what threads do with them: who asks for which
// sample, in which order, and whether all threads are there at once.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iomanip>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "01_mutex_mae/problem.h"
#include "01_mutex_mae/team.h"
#include "common/core/rng.h"
#include "tests/01_mutex_mae/meeting.h"
#include "tests/support/drawn.h"

namespace aisc {

// All numbers are integers, every error below 2^24: each F32 operation is exact. Errors are large
// and odd enough that a sum kept in F32 is not.
inline Problem integer_problem(std::int64_t N, std::int64_t M) {
  const Philox random(test_seed(), "integers");
  const auto integer = [&](std::int64_t i, std::uint64_t size) {
    const auto index = static_cast<std::uint64_t>(i);
    return static_cast<float>(random.below(index, 2 * size + 1)) - static_cast<float>(size);
  };
  Problem problem{.N = N, .M = M, .b = 3};
  for (std::int64_t j = 0; j < M; ++j) problem.w.push_back(integer(j, 9));
  for (std::int64_t i = 0; i < N; ++i) {
    problem.y.push_back(integer(1000 + i, 1 << 22));
    for (std::int64_t j = 0; j < M; ++j) problem.x.push_back(integer(100'000 + i * M + j, 9));
  }
  return problem;
}

// The error of a sample by the oracle's own arithmetic, exact for the problems above.
inline long double exact_error(const Problem& problem, std::int64_t i) {
  long double sum = problem.b;
  for (std::int64_t j = 0; j < problem.M; ++j)
    sum += static_cast<long double>(problem.w[static_cast<std::size_t>(j)]) *
           problem.x[static_cast<std::size_t>(i * problem.M + j)];
  return std::fabs(sum - problem.y[static_cast<std::size_t>(i)]);
}

inline double exact_sum(const Problem& problem) {
  long double sum = 0;
  for (std::int64_t i = 0; i < problem.N; ++i) sum += exact_error(problem, i);
  return static_cast<double>(sum);
}

inline double exact_mean(const Problem& problem) {
  return problem.N == 0 ? 0 : exact_sum(problem) / static_cast<double>(problem.N);
}

// A number that GoogleTest prints with all its digits: two that differ do not look alike.
struct Exactly {
  double value;
  friend bool operator==(Exactly a, Exactly b) { return a.value == b.value; }
  friend std::ostream& operator<<(std::ostream& out, Exactly number) {
    return out << std::setprecision(17) << number.value;
  }
};
inline Exactly exactly(double value) { return {value}; }

// "1 sample", "2 samples"
inline std::string counted(std::int64_t number, const std::string& what) {
  return std::to_string(number) + " " + what + (number == 1 ? "" : "s");
}

// Numbers of samples that are awkward for T threads, and one that nobody knows beforehand.
inline std::vector<std::int64_t> awkward_sizes(std::int64_t T, const std::string& what) {
  return {0, 1, T - 1, T, T + 1, 3 * T + 2, drawn("samples of " + what, 50, 500)};
}

// Samples of each part if N are shared out over `parts`: rounded down at both ends.
inline std::vector<Range> shares_by_chunk(std::int64_t N, int parts) {
  std::vector<Range> shares;
  for (int t = 0; t < parts; ++t) shares.push_back({N * t / parts, N * (t + 1) / parts});
  return shares;
}

// What OpenMP's schedule(static) does: those who get one more come first.
inline std::vector<Range> shares_by_openmp(std::int64_t N, int parts) {
  std::vector<Range> shares;
  std::int64_t begin = 0;
  for (int t = 0; t < parts; ++t) {
    const std::int64_t end = begin + N / parts + (t < N % parts ? 1 : 0);
    shares.push_back({begin, end});
    begin = end;
  }
  return shares;
}

// Watches a problem while it lives. The first question of each thread waits until
// `threads_at_once` threads have asked. `number` tells the calling thread's number of 0 .. T - 1.
class Watched {
 public:
  Watched(Problem& problem, int threads_at_once, std::function<int()> number)
      : problem_(problem), number_(std::move(number)), start_(threads_at_once) {
    problem_.watch = [this](std::int64_t i) { ask(i); };
  }
  ~Watched() { problem_.watch = nullptr; }
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;

  // Each sample was asked for once, by the threads 0 .. threads - 1, and `threads_at_once` of them
  // were there at once.
  void expect_each_once(int threads) const {
    ASSERT_FALSE(start_.failed())
        << "only " << asked_.size() << " of the threads asked for an error within "
        << kPatience.count()
        << " seconds: errors are not computed by all threads at once. (Are there too few threads? "
           "Is the error computed where only one thread at a time may be?)";
    std::vector<int> times(static_cast<std::size_t>(problem_.N));
    for (const auto& one : asked_)
      for (const std::int64_t i : one.second) {
        ASSERT_TRUE(i >= 0 && i < problem_.N) << "sample " << i << " was asked for, which none of "
                                              << counted(problem_.N, "sample") << " is";
        ++times[static_cast<std::size_t>(i)];
      }
    for (std::size_t i = 0; i < times.size(); ++i)
      ASSERT_EQ(times[i], 1) << "sample " << i << " of " << problem_.N << " was asked for "
                             << counted(times[i], "time") << ", expected once";
    for (const auto& one : asked_)
      ASSERT_TRUE(one.first >= 0 && one.first < threads)
          << "thread " << one.first << " asked for errors, of " << threads
          << " threads from 0 on (-1: one that is not in the team)";
    EXPECT_LE(thread_ids_.size(), static_cast<std::size_t>(threads))
        << "more threads asked for errors than there are";
    EXPECT_EQ(thread_ids_.size(), asked_.size()) << "two numbers of threads were one thread";
  }

  // And thread t asked for those of shares[t], in order.
  void expect_shares(const std::vector<Range>& shares) const {
    expect_each_once(static_cast<int>(shares.size()));
    if (testing::Test::HasFatalFailure()) return;
    for (std::size_t t = 0; t < shares.size(); ++t) {
      std::vector<std::int64_t> expected, computed;
      for (std::int64_t i = shares[t].begin; i < shares[t].end; ++i) expected.push_back(i);
      const auto found = asked_.find(static_cast<int>(t));
      if (found != asked_.end()) computed = found->second;
      ASSERT_EQ(computed, expected)
          << "these samples were computed by thread " << t << " of " << shares.size() << ", of "
          << problem_.N << " samples; expected: " << in_words(shares[t]);
    }
  }

 private:
  static std::string in_words(Range share) {
    if (share.begin == share.end) return "none";
    if (share.begin + 1 == share.end) return std::to_string(share.begin);
    return std::to_string(share.begin) + " to " + std::to_string(share.end - 1) + " in order";
  }

  void ask(std::int64_t i) {
    bool first;
    {
      const std::lock_guard lock(mutex_);
      std::vector<std::int64_t>& samples = asked_[number_()];
      first = samples.empty();
      samples.push_back(i);
      thread_ids_.insert(std::this_thread::get_id());
    }
    if (first) start_.wait();
  }

  Problem& problem_;
  std::function<int()> number_;
  Meeting start_;
  std::mutex mutex_;
  std::map<int, std::vector<std::int64_t>> asked_;  // by thread
  std::set<std::thread::id> thread_ids_;
};

// The number of the calling thread in a team, for Watched; -1 for a thread that is not of it.
inline std::function<int()> number_in(Team& team) {
  std::vector<std::thread::id> ids(static_cast<std::size_t>(team.size()));
  team.run([&](int t) { ids[static_cast<std::size_t>(t)] = std::this_thread::get_id(); });
  return [ids] {
    for (std::size_t t = 0; t < ids.size(); ++t)
      if (ids[t] == std::this_thread::get_id()) return static_cast<int>(t);
    return -1;
  };
}

// Calls `sum` without a `between`, which must be noticed.
template <class F>
auto without_between(const F& sum) {
  try {
    return sum();
  } catch (const std::bad_function_call&) {
    throw std::runtime_error("an empty `between` was called: write `if (between) between();`");
  }
}

// A sum by a team, as a function of the problem and the team.
using TeamSum = std::function<double(const Problem&, Team&)>;

// Errors are rounded after each of the M products and additions: by 2^-24 of partial sums that are
// below 16 in the data of a model, and hardly ever all in the same direction. Their sum in F64 is
// as good as exact.
inline constexpr double kF32Errors = 2e-6;

// Whose sum it is, for what a failure says.
enum class SumOf { OneThread, Team };

// Exact on integers, for 1 to 9 threads and awkward numbers of samples, and near the mean by the
// oracle on data like those of a real model. Nothing is watched here, so the thread sanitizer sees
// the threads as they are: no lock of a test orders them. And all cases run, whether one was wrong
// or not: two threads may collide without its seeing it, but not always.
inline void expect_mean(const std::string& name, const TeamSum& sum, SumOf of = SumOf::Team) {
  std::ostringstream first_wrong;
  for (int T = 1; T <= 9; ++T) {
    Team team(T);
    for (const std::int64_t N : awkward_sizes(T, name)) {
      const Problem problem = integer_problem(N, 5);
      const double mean = sum(problem, team), exact = exact_mean(problem);
      if (mean != exact && first_wrong.str().empty())
        first_wrong << name << " of " << counted(N, "sample")
                    << (of == SumOf::Team ? " with " + counted(T, "thread") : "") << " is off by "
                    << mean - exact << "; these are integers, whose sum must be exact";
    }
  }
  EXPECT_TRUE(first_wrong.str().empty()) << first_wrong.str();
  const Problem model =
      make_problem(drawn("samples of a model, " + name, 200, 2000), 20, test_seed());
  Team team(3);
  EXPECT_NEAR(sum(model, team), exact_mean(model), kF32Errors) << name << " of a model's errors";
}

// Thread t computes chunk t, for awkward numbers of samples.
inline void expect_chunks(const std::string& name, const TeamSum& sum) {
  for (const int T : {1, 2, 5}) {
    Team team(T);
    for (const std::int64_t N : awkward_sizes(T, name)) {
      Problem problem = integer_problem(N, 2);
      const Watched watched(problem, static_cast<int>(std::min<std::int64_t>(N, T)),
                            number_in(team));
      sum(problem, team);
      watched.expect_shares(shares_by_chunk(N, T));
      ASSERT_FALSE(testing::Test::HasFailure()) << name << " with " << counted(T, "thread");
    }
  }
}

// Thread 0 of two adds 2^53, then thread 1 adds 1 and 1. 2^53 + 1 is 2^53 in F64, but 1 + 1 is 2:
// how often 1 was added to a sum that 2^53 is in shows. All that was added, and rounded.
inline double sum_after_a_large_one(const TeamSum& sum) {
  Problem problem{.N = 4, .M = 0, .y = {9007199254740992.0f, 0, 1, 1}};
  Event large_is_in;
  bool in_time = true;
  problem.watch = [&](std::int64_t i) {
    if (i == 1) large_is_in.tell();
    if (i == 2) in_time = large_is_in.wait();
  };
  Team team(2);
  const double mean = sum(problem, team);
  EXPECT_TRUE(in_time)
      << "the thread of samples 0 and 1 cannot go on while the other one waits for "
         "its first error: is an error computed under a lock?";
  return mean * 4;
}

// All threads add each of their errors to one sum.
inline void expect_one_sum(const TeamSum& sum) {
  EXPECT_EQ(exactly(sum_after_a_large_one(sum)), exactly(9007199254740992.0))
      << "2^53, then + 1 and + 1, which F64 rounds away in a sum that all threads add to: does "
         "each "
         "thread add up errors in a sum of its own?";
}

// Each thread adds its errors to a sum of its own first.
inline void expect_own_sums(const TeamSum& sum) {
  EXPECT_EQ(exactly(sum_after_a_large_one(sum)), exactly(9007199254740994.0))
      << "2^53 by one thread, 1 + 1 by the other: are errors added to a sum of all threads, in "
         "place "
         "of a sum of their own?";
}

// Two threads that leave unlock at the same time, again and again: what they do to the sum after it
// collides sooner or later, on two cores at least. (On one, the thread sanitizer still sees it.)
inline void expect_nothing_lost_after_unlock(double (*sum)(const Problem&, Team&, CountedMutex&)) {
  const Problem problem{.N = 2, .M = 0, .y = {1, 2}};
  Team team(2);
  CloseMeeting unlocked(2);
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
  for (int round = 0; std::chrono::steady_clock::now() < end; ++round) {
    CountedMutex mutex([&] { unlocked.wait(); });
    ASSERT_EQ(exactly(sum(problem, team, mutex)), exactly(1.5))
        << "(1 + 2) / 2, in round " << round
        << ": an addition was lost. Is it made while the lock is held, from load to store?";
  }
}

}  // namespace aisc
