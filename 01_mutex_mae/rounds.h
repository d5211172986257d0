// Measuring in turns: a machine that others use, too, is slow now and fast then, so all that is to
// be compared runs once in each round, and what is told is the median over rounds.
#pragma once

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "01_mutex_mae/team.h"
#include "common/core/median.h"
#include "common/core/system/machine.h"

namespace aisc {

struct Turn {
  std::function<void()> prepare;  // not timed; may be empty
  std::function<double()> call;   // what is timed
  std::vector<double> seconds;    // of a call, one value for each round
  std::vector<double> results;    // of the calls that were timed, of all rounds
};

// `rounds` rounds, in which each turn is called until `seconds_each` have passed, at least once,
// after one call that does not count: it finds threads awake and data where it will be. The order
// is another one in each round: whoever comes after one and the same other turn may find the
// processor faster or slower by a tenth.
inline void take_turns(std::vector<Turn>& turns, int rounds, double seconds_each) {
  using Now = std::chrono::steady_clock;
  const auto seconds_since = [](Now::time_point begin) {
    return std::chrono::duration<double>(Now::now() - begin).count();
  };
  std::vector<std::size_t> order(turns.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::minstd_rand random(1);
  for (int round = 0; round < rounds; ++round) {
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t k : order) {
      Turn& turn = turns[k];
      if (turn.prepare) turn.prepare();
      auto begin = Now::now();
      turn.call();
      const double once = std::max(seconds_since(begin), 1e-9);
      const int calls = std::clamp(static_cast<int>(seconds_each / once), 1, 100'000);
      turn.results.reserve(turn.results.size() + static_cast<std::size_t>(calls));
      begin = Now::now();
      for (int call = 0; call < calls; ++call) turn.results.push_back(turn.call());
      turn.seconds.push_back(seconds_since(begin) / calls);
    }
  }
}

// Teams of several sizes, and OpenMP's threads, each thread on a core of its own as long as there
// are enough.
class BoundThreads {
 public:
  explicit BoundThreads(const std::vector<int>& sizes) {
    for (const int size : sizes) teams_.push_back(std::make_unique<Team>(size));
    for (const auto& team : teams_) team->run([this](int thread) { cores_.bind(thread); });
  }
  ~BoundThreads() { cores_.release(); }
  BoundThreads(const BoundThreads&) = delete;
  BoundThreads& operator=(const BoundThreads&) = delete;

  int cores() const { return cores_.count(); }
  Team& team(int size) const {
    for (const auto& team : teams_)
      if (team->size() == size) return *team;
    return *teams_.front();
  }

  // Before a turn of a team: OpenMP's threads, which look for work for a while after a region, end.
  static void end_openmp() { omp_pause_resource_all(omp_pause_soft); }
  // Before a turn of OpenMP.
  void bind_openmp(int threads) const {
#pragma omp parallel num_threads(threads)
    cores_.bind(omp_get_thread_num());
  }

 private:
  Cores cores_;  // before the first thread is bound
  std::vector<std::unique_ptr<Team>> teams_;
};

// 1, 2, 4 ... up to twice the cores, and the number of cores.
inline std::vector<int> thread_counts(int cores) {
  std::vector<int> counts;
  for (int count = 1; count <= 2 * cores; count *= 2) {
    if (count / 2 < cores && cores < count) counts.push_back(cores);
    counts.push_back(count);
  }
  return counts;
}

}  // namespace aisc
