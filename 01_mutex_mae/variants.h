// All ways of this module to compute the same number, by name: what demo and bench measure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "01_mutex_mae/mae.h"
#include "01_mutex_mae/mae_omp.h"
#include "01_mutex_mae/partial_sums.h"
#include "01_mutex_mae/problem.h"
#include "01_mutex_mae/reproducible.h"
#include "01_mutex_mae/team.h"

namespace aisc {

enum class RunsOn { Caller, Team, OpenMp };  // one thread; the team; as many OpenMP threads

struct Variant {
  std::string name;  // "mutex"
  std::string what;  // how the threads' errors become one sum, in a few words
  RunsOn runs_on = RunsOn::Team;
  double tolerance = 0;  // how far the result may be from the serial one, relative to it
  std::function<double(const Problem& problem, Team& team)> run;
};

// Tolerances: F64 sums of up to 2^24 numbers in another order; F32 products in another order; a sum
// that may lose updates can be anything.
inline constexpr double kOrderOfSum = 1e-9, kOrderOfProducts = 1e-5, kLosesUpdates = 1e300;

// Serial first. Built anew in each call.
inline std::vector<Variant> variants() {
  const auto with_mutex = [](double (*run)(const Problem&, Team&, CountedMutex&)) {
    return [run](const Problem& problem, Team& team) {
      CountedMutex mutex;
      return run(problem, team, mutex);
    };
  };
  const auto in_openmp = [](double (*run)(const Problem&, int)) {
    return [run](const Problem& problem, Team& team) { return run(problem, team.size()); };
  };
  const auto side_by_side = [](Layout layout) {
    return [layout](const Problem& problem, Team& team) {
      PartialSums sums(team.size(), layout);
      return mae_partial_sums(problem, team, sums);
    };
  };
  return {
      {"serial", "one thread, one sum", RunsOn::Caller, 0,
       [](const Problem& problem, Team&) { return mae_serial(problem); }},
      {"racy", "one sum: load, add, store", RunsOn::Team, kLosesUpdates,
       [](const Problem& problem, Team& team) { return mae_racy(problem, team); }},
      {"mutex", "one sum, a lock for each update", RunsOn::Team, kOrderOfSum,
       with_mutex(mae_mutex)},
      {"atomic", "one sum, compare and exchange", RunsOn::Team, kOrderOfSum,
       [](const Problem& problem, Team& team) { return mae_atomic(problem, team); }},
      {"reduction", "a sum per thread, one update each", RunsOn::Team, kOrderOfSum,
       with_mutex(mae_reduction)},
      {"omp critical", "the mutex in OpenMP's words", RunsOn::OpenMp, kOrderOfSum,
       in_openmp(mae_omp_critical)},
      {"omp atomic", "the atomic in OpenMP's words", RunsOn::OpenMp, kOrderOfSum,
       in_openmp(mae_omp_atomic)},
      {"omp reduction", "the reduction in OpenMP's words", RunsOn::OpenMp, kOrderOfSum,
       in_openmp(mae_omp_reduction)},
      {"simd", "omp reduction, 16 lanes in a sample", RunsOn::OpenMp, kOrderOfProducts,
       in_openmp(mae_simd)},
      {"packed", "sums in memory, one cache line", RunsOn::Team, kOrderOfSum,
       side_by_side(Layout::Packed)},
      {"padded", "sums in memory, a line each", RunsOn::Team, kOrderOfSum,
       side_by_side(Layout::Padded)},
      {"reproducible", "a fixed tree over leaves of 256", RunsOn::Team, kOrderOfSum,
       mae_reproducible},
  };
}

}  // namespace aisc
