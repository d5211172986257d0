// A benchmark's ranks under mpirun, as a child that is kept for many measurements: raw_mpi calls
// MPI directly, programs of serve_ranks.h this library on processes.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "bench/comm_case.h"

namespace aisc {

// The rows of the table that processes are measured for: "mpi", "mpi-check" (every call is compared
// between the ranks) and "raw-mpi".
bool is_mpi_backend(const std::string& backend);

class MpiProcesses {
 public:
  // True where the benchmark was built with MPI and mpirun is still there.
  static bool available();

  // Starts `ranks` processes, more than there are cores if need be, for a row of the table, and
  // waits until they are there. What calls this library is `rank_program`, built beside this one.
  // Throws Error.
  MpiProcesses(const std::string& backend, int ranks,
               const std::string& rank_program = "mpi_ranks");
  MpiProcesses(const MpiProcesses&) = delete;
  MpiProcesses& operator=(const MpiProcesses&) = delete;
  ~MpiProcesses();  // ends them

  // Seconds of one of `calls` calls, after one more that is not measured; with 0 calls it checks
  // the output of one. By an algorithm of rank_program, or without a name as the backend does it by
  // itself. Throws as ask().
  double measure(const CommCase& c, std::int64_t calls, const std::string& algorithm = "");

  // Sends a command (rank_command.h), one line, and returns the numbers that come back. Throws
  // Error with what it says instead, if it ended, or if it says nothing for 100 s.
  std::vector<double> ask(const std::string& command);

 private:
  void end();

  const std::string backend_;
  const int ranks_;
  pid_t process_ = -1;
  int socket_ = -1;  // its standard input and output
};

}  // namespace aisc
