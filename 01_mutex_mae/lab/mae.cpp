// Yours to write; from 01_mutex_mae/solution/mae.cpp (stub 94d3cf3bc294).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
// One sum by one thread, then by several that add to one number: racing, behind a lock, atomically,
// and, the form that scales, each to a number of its own first.
#include "01_mutex_mae/mae.h"

#include "common/core/error.h"

namespace aisc {

Range chunk(std::int64_t N, int thread, int threads) {
  // LAB 01.1: chunk
  // Rounded down at both ends: where one chunk ends, the next begins.
  throw NotImplemented("lab 01.1: chunk", __FILE__, __LINE__);
  // END LAB 01.1
}

// LAB 01.2: mae_serial
// Helpers, if you want any.
// END LAB 01.2

double mae_serial(const Problem& problem) {
  // LAB 01.2: mae_serial
  // error_of and mean_error (problem.h) do most of it.
  throw NotImplemented("lab 01.2: mae_serial", __FILE__, __LINE__);
  // END LAB 01.2
}

double mae_racy(const Problem& problem, Team& team, const std::function<void()>& between) {
  // LAB 01.3: mae_racy
  // team.run calls its body on every thread. An std::atomic<double> that is loaded and stored
  // with std::memory_order_relaxed: wrong on purpose, but not undefined.
  throw NotImplemented("lab 01.3: mae_racy", __FILE__, __LINE__);
  // END LAB 01.3
}

double mae_mutex(const Problem& problem, Team& team, CountedMutex& mutex) {
  // LAB 01.4: mae_mutex
  // What must be done under the lock, and what need not be?
  throw NotImplemented("lab 01.4: mae_mutex", __FILE__, __LINE__);
  // END LAB 01.4
}

void add_atomically(std::atomic<double>& sum, double value, const std::function<void()>& between) {
  // LAB 01.5: mae_atomic
  // compare_exchange_weak(old, wanted) stores `wanted` if the value is still `old`; if not, it
  // stores nothing and puts what it found into `old`.
  throw NotImplemented("lab 01.5: mae_atomic", __FILE__, __LINE__);
  // END LAB 01.5
}

double mae_atomic(const Problem& problem, Team& team, const std::function<void()>& between) {
  // LAB 01.5: mae_atomic
  // add_atomically, above, is one addition, and `between` is passed on to it.
  throw NotImplemented("lab 01.5: mae_atomic", __FILE__, __LINE__);
  // END LAB 01.5
}

double mae_reduction(const Problem& problem, Team& team, CountedMutex& mutex) {
  // LAB 01.6: mae_reduction
  // Where must the private sum live, so that no other thread ever touches it?
  throw NotImplemented("lab 01.6: mae_reduction", __FILE__, __LINE__);
  // END LAB 01.6
}

}  // namespace aisc
