// Starts the ranks of a program, here as threads of this process.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "common/comm/network.h"
#include "common/comm/plan.h"
#include "common/comm/rank.h"

namespace aisc {

struct LaunchOptions {
  int ranks = 1;
  double timeout_seconds = 30;  // wall time that a blocking call may wait; none when paced

  // Given: virtual time on this network. Clocks start at 0 and move by Clock::advance and by
  // communication alone; every collective runs as a plan (default_plans where `plans` has none).
  std::optional<Network> network{};
  double pace = 0;  // > 0, virtual time only: sleeps along, so many wall seconds per virtual second

  PlanTable plans{};  // empty: collectives as the backend does them best

  CpuDevice::Options device{};  // of each rank
  bool record_trace = false;

  // Cores: each rank gets max(1, cores / ranks) OpenMP threads, and, when every rank has a core of
  // its own, is bound to its cores.
  bool bind = true;
  std::size_t stack_bytes = 0;  // 0: the system's; 256 KiB for more than 64 ranks in virtual time

  // Internal sizes, options so that tests reach every path with small buffers.
  std::int64_t chunk_bytes = 256 * 1024;  // what a rank works on at a time
  std::int64_t inline_bytes = 16 * 1024;  // up to here the last to arrive does all the work
  // Wraps the world, and by its own split() everything split from it; for tests.
  std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)> decorate{};
};

// Runs `body` once per rank, each in a thread of its own, and returns when all have returned. The
// first exception aborts the others, whose communicator calls then throw, and is thrown again here:
// an Error as Error "rank 2: ...", NotImplemented (and whatever a single rank throws) as it is. A
// rank that does not return within the timeout after a failure ends the process with that failure's
// message on the standard error, exit status 70: a thread cannot be stopped from outside.
void launch(const LaunchOptions& options, const std::function<void(Rank)>& body);

}  // namespace aisc
