// The open exercise of this module: how near mae_simd comes to what the memory can do where samples
// are shorter than the lanes. Sums and readings of memory take turns, since the machine's speed
// drifts; each sum reads the features and targets once, and is compared with the serial one.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "01_mutex_mae/mae.h"
#include "01_mutex_mae/mae_omp.h"
#include "01_mutex_mae/rounds.h"
#include "01_mutex_mae/variants.h"
#include "common/core/error.h"
#include "common/core/flags/program.h"

namespace aisc {
namespace {

constexpr std::int64_t kFeatures = 8;

void score(double mib, int rounds) {
  const auto N = static_cast<std::int64_t>(mib * (1 << 20)) / 4 / kFeatures;
  const Problem problem = make_problem(N, kFeatures);
  const double bytes = 4.0 * static_cast<double>(N * (kFeatures + 1)),
               expected = mae_serial(problem);
  const BoundThreads threads({available_cores()});
  const int cores = threads.cores();
  const auto prepare = [&] {
    BoundThreads::end_openmp();
    threads.bind_openmp(cores);
  };
  std::vector<double> bandwidths, shares;
  std::vector<Turn> turns(2);
  turns[0].prepare = prepare;
  turns[0].call = [&] { return mae_simd(problem, cores); };
  turns[1].prepare = [&] {
    prepare();
    bandwidths.push_back(measure_read_bandwidth(cores));
  };
  turns[1].call = [] { return 0.0; };
  take_turns(turns, rounds, 0);
  BoundThreads::end_openmp();
  for (const double result : turns[0].results)
    if (!(std::fabs(result - expected) <= kOrderOfProducts * expected))
      fail(fmt::format("mae_simd returns {}, expected {}, the serial result, up to {:g} of it",
                       result, expected, kOrderOfProducts));
  for (std::size_t round = 0; round < bandwidths.size(); ++round)
    shares.push_back(bytes / turns[0].seconds[round] / bandwidths[round]);
  fmt::print("{} samples of {} features, {} threads: {:.1f} ms, {:.1f} GB/s\n", N, kFeatures, cores,
             1e3 * median(turns[0].seconds), bytes / median(turns[0].seconds) / 1e9);
  fmt::print("score {:.3f}: nothing reads more than {:.1f} GB/s\n", std::min(1.0, median(shares)),
             median(bandwidths) / 1e9);
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  double mib = 256;
  int rounds = 5;
  return aisc::program(
      argc, argv, "Scores mae_simd for samples of 8 features: the open exercise.",
      [&](aisc::CommandLine& line) {
        line.number("--mib", mib, 1.0 / 1024, 1e6, "of features");
        line.number("--rounds", rounds, 1, 1000, "of a sum and a reading; medians count");
      },
      [&] { aisc::score(mib, rounds); });
}
