// Whether this process is one of many that a launcher of MPI programs has started, and how to start
// them.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace aisc {

struct Processes {
  std::string launcher;  // "mpirun", "srun", ...: for messages
  int rank = 0;          // of this process
  int size = 1;
};

// By the environment alone; MPI is not asked. Nothing where this process was started by itself, and
// in the script of a batch job. Throws Error where the launcher's variables make no sense.
std::optional<Processes> started_processes();

// True if this program was built with MPI.
bool has_mpi();

// A command that starts `program`, with its arguments, as so many processes of this machine:
// mpirun, with settings of Open MPI and MPICH as environment that hold on any machine: more ranks
// than cores, no binding, root where we are root. Throws Error where there is no mpirun.
std::vector<std::string> mpirun_command(int ranks, const std::vector<std::string>& program);

}  // namespace aisc
