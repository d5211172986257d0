// What can be said of measured numbers without looking at how fast the machine is, and the cores
// that threads are bound to.
#include "common/core/system/machine.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <thread>
#include <vector>

namespace aisc {
namespace {

TEST(Machine, ClockIsThatOfAProcessor) {
  const double hz = measure_clock_hz();
  EXPECT_GT(hz, 1e7);  // other programs and sanitizers take their share
  EXPECT_LT(hz, 2e10);
}

TEST(Cores, AreThoseOfTheProcess) { EXPECT_EQ(Cores().count(), available_cores()); }

TEST(Cores, BindAThreadToOneAndReleaseItToAll) {
  const Cores cores;
  std::thread([&] {
    for (int thread = 0; thread <= cores.count(); ++thread) {
      cores.bind(thread);
      EXPECT_EQ(available_cores(), 1) << "thread " << thread;
    }
    cores.release();
    EXPECT_EQ(available_cores(), cores.count());
  }).join();
}

// How many cores each thread of a parallel region may use.
std::vector<int> cores_of_threads(int threads) {
  std::vector<int> counts(static_cast<std::size_t>(threads));
#pragma omp parallel num_threads(threads)
  counts[static_cast<std::size_t>(omp_get_thread_num())] = available_cores();
  return counts;
}

TEST(Cores, MeasuringLeavesThreadsWhereTheyWere) {
  const int cores = available_cores();
  const std::vector<int> before = cores_of_threads(cores);
  EXPECT_GT(measure_peak_flops(DType::F32, cores), 0);
  EXPECT_EQ(cores_of_threads(cores), before);
  // As under OMP_PROC_BIND: the caller has one core, and the others must not end on it, too.
  const Cores all;
  all.bind(0);
  EXPECT_GT(measure_peak_flops(DType::F32, cores), 0);
  std::vector<int> others = cores_of_threads(cores);
  all.release();
  others[0] = before[0];
  EXPECT_EQ(others, before);
}

}  // namespace
}  // namespace aisc
