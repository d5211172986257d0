// The peak of several ranks: each core is measured once, and all know the same.
#include "app/peak_meter.h"

#include <gtest/gtest.h>
#include <omp.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/core/system/machine.h"

namespace aisc {
namespace {

// What the meter of each rank says, of so many threads a rank.
struct Said {
  double flops = 0;
  int first_core = 0, core_count = 0;
};

std::vector<Said> said(int ranks, int threads) {
  std::vector<Said> all(static_cast<std::size_t>(ranks));
  launch({.ranks = ranks, .bind = false}, [&](Rank rank) {
    omp_set_num_threads(threads);
    PeakMeter peak(rank, DType::F32);
    EXPECT_EQ(peak.threads(), ranks * threads);
    const double before = peak.flops();
    EXPECT_GT(before, 0);
    peak.measure_again();
    EXPECT_GE(peak.flops(), before);
    all[static_cast<std::size_t>(rank.world.rank())] = {peak.flops(), peak.first_core(),
                                                        peak.core_count()};
  });
  return all;
}

// Ranks that all measured the first core would find too little, and ranks that each measured their
// share of a core that others measure at another moment too much.
TEST(PeakMeter, MeasuresEachCoreThatRanksShareOnce) {
  const int cores = available_cores();
  for (const auto& [ranks, threads] :
       {std::pair(1, 1), std::pair(1, cores + 1), std::pair(2, 1), std::pair(cores + 1, 1)}) {
    const std::vector<Said> all = said(ranks, threads);
    int next = 0;
    for (const Said& rank : all) {
      EXPECT_EQ(rank.first_core, std::min(next, cores));
      next += rank.core_count;
      EXPECT_EQ(rank.flops, all[0].flops) << "all ranks know the same";
    }
    EXPECT_EQ(next, std::min(ranks * threads, cores)) << ranks << " ranks of " << threads;
  }
}

}  // namespace
}  // namespace aisc
