// The mean absolute error, (1/N) sum over i of |w . x_i + b - y_i|, by one thread and by several
// that add to one number. All sums are F64, all results 0 for N = 0. Thread t of T computes the
// errors of chunk(N, t, T), each once; T may be larger than N.
#pragma once

#include <atomic>
#include <functional>

#include "01_mutex_mae/problem.h"
#include "01_mutex_mae/team.h"

namespace aisc {

// Samples of thread t of T, t from 0 on: {t N / T, (t + 1) N / T}, both rounded down. The second
// is the end, the one behind the last sample. Together they are 0 .. N - 1, in order, and no two
// differ in length by more than one.
Range chunk(std::int64_t N, int thread, int threads);

// One thread, from the first sample to the last.
double mae_serial(const Problem& problem);

// All threads add to one atomic sum, but not atomically: for each sample, once its
// error is known, a relaxed load, an addition, a relaxed store. Each of the three is well defined;
// what others store in between is lost. `between`, if given, is called between the load and the
// store, when a scheduler might let another thread run.
double mae_racy(const Problem& problem, Team& team, const std::function<void()>& between = {});

// All threads add to one number, each addition (and nothing else: not the error's computation)
// under `mutex`: N locks.
double mae_mutex(const Problem& problem, Team& team, CountedMutex& mutex);

// sum += value as one indivisible step, by compare-and-exchange: load, add, store if nobody has
// stored since, else again from what is there now. `between`, if given, is called before each
// attempt to store. Relaxed order: only the sum itself is shared. fetch_add of C++20 does the same.
void add_atomically(std::atomic<double>& sum, double value,
                    const std::function<void()>& between = {});

// All threads add to one atomic sum, by add_atomically, which `between` is passed on to: N atomic
// additions, no lock.
double mae_atomic(const Problem& problem, Team& team, const std::function<void()>& between = {});

// Each thread adds its errors to a number of its own and in the end, once, to the sum of all, under
// `mutex`: T locks. The order of the T additions is by chance, so the last bits may differ from run
// to run (reproducible.h does better).
double mae_reduction(const Problem& problem, Team& team, CountedMutex& mutex);

}  // namespace aisc
