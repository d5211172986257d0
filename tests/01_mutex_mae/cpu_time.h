// Who computes: the time that a thread was at work. Unlike time by the clock it does not grow while
// a thread waits for a core, so that it says the same on one core and on many.
#pragma once

#include <time.h>

#include <vector>

#include "01_mutex_mae/team.h"

namespace aisc {

// Of the calling thread, since it began.
inline double thread_cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// What each thread of the team works while `work` runs. A team looks for work for a while before it
// sleeps, which counts too: some 0.2 ms.
template <class Work>
std::vector<double> cpu_seconds_of(Team& team, const Work& work) {
  std::vector<double> seconds(static_cast<std::size_t>(team.size()));
  team.run([&](int t) { seconds[static_cast<std::size_t>(t)] = -thread_cpu_seconds(); });
  work();
  team.run([&](int t) { seconds[static_cast<std::size_t>(t)] += thread_cpu_seconds(); });
  return seconds;
}

}  // namespace aisc
