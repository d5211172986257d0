// How ranks are started. Those of a program: as threads of this process, or, where mpirun, srun or
// the like has started it many times over, as its processes. The program is the same.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/comm/network.h"
#include "common/comm/plan.h"
#include "common/comm/rank.h"

namespace aisc {

struct LaunchOptions {
  int ranks = 1;  // of processes there must be as many; 0: as many as there are, 1 thread elsewhere
  enum class Backend {
    Auto,     // processes where they were started as such and no network is given, else threads
    Threads,  // of this process
    Mpi       // processes; Error where this is the only one
  } backend = Backend::Auto;

  double timeout_seconds = 30;  // wall time that a blocking call may wait; none when paced

  // Given: virtual time on this network. Clocks start at 0 and move by Clock::advance and by
  // communication alone; every collective runs as a plan (default_plans where `plans` has none).
  std::optional<Network> network{};
  double pace = 0;  // > 0, virtual time only: sleeps along, so many wall seconds per virtual second

  PlanTable plans{};  // empty: collectives as the backend does them best

  DeviceOptions device{};  // of each rank, or, given, what this makes for it: emulated devices
  std::function<std::unique_ptr<Device>(int rank, Clock& clock)> make_device{};
  // How ranks whose device is a GPU exchange what lies on it.
  enum class BetweenGpus {
    Auto,    // by NCCL where that is possible, else staged
    Staged,  // through host memory
    Nccl  // Error where that is impossible: in a build without it, in virtual time, and where two
          // ranks share a GPU
  } between_gpus = BetweenGpus::Auto;
  bool record_trace = false;

  // Cores: each rank gets max(1, cores / ranks) OpenMP threads, and, when every rank has a core of
  // its own, is bound to its cores. Processes share those of their node that they may use.
  bool bind = true;

  // Processes: the calls behind every message are compared before its data moves, at the price of a
  // second, short message before each. Threads always compare.
  bool check_calls = true;

  // Sizes for tests, which reach every path with small buffers, and what they put in the way.
  struct Internals {
    std::int64_t message_bytes = 8 << 20;   // processes: longer messages are cut; at most 2^31 - 1
    std::int64_t chunk_bytes = 256 * 1024;  // what a rank works on at a time
    std::int64_t inline_bytes = 16 * 1024;  // up to here the last to arrive does all the work
    // Threads: 0: the system's, or 256 KiB for more than 64 ranks in virtual time.
    std::size_t stack_bytes = 0;
    // Wraps the world, and by its own split() everything split from it.
    std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)> decorate{};
  } internals{};
};

// Runs `body` once per rank, each in a thread of its own or, of processes, here, and returns when
// all have returned. The first exception aborts the others, whose communicator calls then throw,
// and is thrown again here, in every process: an Error as Error "rank 2: ...", NotImplemented (and
// whatever a single rank throws) as it is. A rank that does not return within the timeout after a
// failure ends the process, or all processes, with that failure's message on the standard error,
// exit status 70: a thread cannot be stopped from outside.
//
// All processes call it the same number of times, in the same order. The first call initializes
// MPI, which is finalized when the process exits.
void launch(const LaunchOptions& options, const std::function<void(Rank)>& body);

// Where a launcher of MPI programs has started this process, as one of many.
struct Processes {
  std::string launcher;  // "mpirun", "srun", ...: for messages
  int rank = 0;          // of this process
  int size = 1;
  int here = 1;  // of them on this machine, as far as the launcher says
};

// By the environment alone; MPI is not asked. Nothing where this process was started by itself, and
// in the script of a batch job. Throws Error where the launcher's variables make no sense.
std::optional<Processes> started_processes();

// True if this program was built with MPI; with NCCL.
bool has_mpi();
bool has_nccl();

// A command that starts `program`, with its arguments, as so many processes of this machine:
// mpirun, with settings of Open MPI and MPICH as environment that hold on any machine: more ranks
// than cores, no binding, root where we are root. Throws Error where there is no mpirun.
std::vector<std::string> mpirun_command(int ranks, const std::vector<std::string>& program);

}  // namespace aisc
