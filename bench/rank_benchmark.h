// A row of a benchmark that several ranks work on.
#pragma once

#include <benchmark/benchmark.h>
#include <omp.h>

#include "common/comm/launch.h"
#include "common/core/system/polite_waits.h"

namespace aisc {

// Measures, for UseManualTime(), so many ranks with a thread each. make(rank) prepares on each of
// them what is measured, a function, which all call at once; the first call is a warm-up. A time is
// rank 0's, until all are done. What was prepared stays for all calls.
template <class Make>
void on_ranks(benchmark::State& state, int ranks, const Make& make) {
  const PoliteWaits waits(ranks);
  launch({.ranks = ranks}, [&](const Rank& rank) {
    omp_set_num_threads(1);
    const auto work = make(rank);
    work();
    const auto timed = [&] {
      rank.world.barrier();
      const double begin = rank.clock.now();
      work();
      rank.world.barrier();
      return rank.clock.now() - begin;
    };
    if (rank.world.rank() > 0) {
      for (auto left = state.max_iterations; left > 0; --left) timed();
      return;
    }
    for (auto _ : state) state.SetIterationTime(timed());
  });
}

}  // namespace aisc
