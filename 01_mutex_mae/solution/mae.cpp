// One sum by one thread, then by several that add to one number: racing, behind a lock, atomically,
// and, the form that scales, each to a number of its own first.
#include "01_mutex_mae/mae.h"

namespace aisc {

Range chunk(std::int64_t N, int thread, int threads) {
  // LAB 01.1: chunk
  // > Rounded down at both ends: where one chunk ends, the next begins.
  return {N * thread / threads, N * (thread + 1) / threads};
  // END LAB 01.1
}

// LAB 01.2: mae_serial
// > Helpers, if you want any.
namespace {

// In F64: a float of 2^24 no longer changes when an error below 1 is added.
double sum_of_errors(const Problem& problem, Range samples) {
  double sum = 0;
  for (std::int64_t i = samples.begin; i < samples.end; ++i) sum += error_of(problem, i);
  return sum;
}

}  // namespace
// END LAB 01.2

double mae_serial(const Problem& problem) {
  // LAB 01.2: mae_serial
  // > error_of and mean_error (problem.h) do most of it.
  return mean_error(sum_of_errors(problem, {0, problem.N}), problem.N);
  // END LAB 01.2
}

double mae_racy(const Problem& problem, Team& team, const std::function<void()>& between) {
  // LAB 01.3: mae_racy
  // > team.run calls its body on every thread. An std::atomic<double> that is loaded and stored
  // > with std::memory_order_relaxed: wrong on purpose, but not undefined.
  std::atomic<double> sum = 0;
  team.run([&](int thread) {
    const auto [begin, end] = chunk(problem.N, thread, team.size());
    for (std::int64_t i = begin; i < end; ++i) {
      const double error = error_of(problem, i);
      const double old = sum.load(std::memory_order_relaxed);
      if (between) between();
      sum.store(old + error, std::memory_order_relaxed);  // forgets what came since the load
    }
  });
  return mean_error(sum, problem.N);
  // END LAB 01.3
}

double mae_mutex(const Problem& problem, Team& team, CountedMutex& mutex) {
  // LAB 01.4: mae_mutex
  // > What must be done under the lock, and what need not be?
  double sum = 0;
  team.run([&](int thread) {
    const auto [begin, end] = chunk(problem.N, thread, team.size());
    for (std::int64_t i = begin; i < end; ++i) {
      const double error = error_of(problem, i);  // nobody waits for this
      const std::lock_guard lock(mutex);
      sum += error;
    }
  });
  return mean_error(sum, problem.N);
  // END LAB 01.4
}

void add_atomically(std::atomic<double>& sum, double value, const std::function<void()>& between) {
  // LAB 01.5: mae_atomic
  // > compare_exchange_weak(old, wanted) stores `wanted` if the value is still `old`; if not, it
  // > stores nothing and puts what it found into `old`.
  double old = sum.load(std::memory_order_relaxed);
  do {
    if (between) between();
  } while (!sum.compare_exchange_weak(old, old + value, std::memory_order_relaxed));
  // END LAB 01.5
}

double mae_atomic(const Problem& problem, Team& team, const std::function<void()>& between) {
  // LAB 01.5: mae_atomic
  // > add_atomically, above, is one addition, and `between` is passed on to it.
  std::atomic<double> sum = 0;
  team.run([&](int thread) {
    const auto [begin, end] = chunk(problem.N, thread, team.size());
    for (std::int64_t i = begin; i < end; ++i) add_atomically(sum, error_of(problem, i), between);
  });
  return mean_error(sum, problem.N);
  // END LAB 01.5
}

double mae_reduction(const Problem& problem, Team& team, CountedMutex& mutex) {
  // LAB 01.6: mae_reduction
  // > Where must the private sum live, so that no other thread ever touches it?
  double sum = 0;
  team.run([&](int thread) {
    const double my_sum = sum_of_errors(problem, chunk(problem.N, thread, team.size()));
    const std::lock_guard lock(mutex);
    sum += my_sum;
  });
  return mean_error(sum, problem.N);
  // END LAB 01.6
}

}  // namespace aisc
