// How long the threads of OpenMP look for work before they sleep.
#pragma once

#include <memory>
#include <optional>
#include <vector>

namespace aisc {

// GCC's OpenMP lets a thread that waits look for about 5 ms before it sleeps. Where cores are free
// that is right: to wake a sleeping thread takes longer than many operations here, and steps of the
// default run take 1.4 times as long if threads sleep after 20 us. On a core that another program
// wants, too, it is time that the thread which is waited for does not get: small steps then take
// thirty times as long.
//
// So this looks, five times a second, whether other programs compute on these cores. While they do,
// and for a second more, it holds a team of idle threads: where a process has more OpenMP threads
// than it has cores, GCC's OpenMP lets them sleep almost at once (libgomp's manual, under
// GOMP_SPINCOUNT). It does nothing where the environment speaks of waiting (OMP_WAIT_POLICY,
// GOMP_SPINCOUNT), with another OpenMP, or where the system does not tell who computes.
class PoliteWaits {
 public:
  // `threads` is how many of this process compute at once, of all its ranks. Cores that they leave
  // free others may have.
  explicit PoliteWaits(int threads);
  ~PoliteWaits();

 private:
  class Watch;
  std::unique_ptr<Watch> watch_;
};

// Seconds in which these cores computed for anyone since the system started, in steps of 10 ms, and
// for this process. Nothing where the system does not tell.
std::optional<double> seconds_of_cores(const std::vector<int>& cores);
std::optional<double> seconds_of_this_process();

}  // namespace aisc
