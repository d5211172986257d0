// The program raw_mpi under mpirun, as a child that is kept for many measurements.
#pragma once

#include <sys/types.h>

#include <string>

#include "bench/comm_case.h"

namespace aisc {

class RawMpiProcess {
 public:
  // True where the benchmark was built with MPI and mpirun is still there.
  static bool available();

  // Starts `ranks` processes, more than there are cores if need be. Throws Error.
  explicit RawMpiProcess(int ranks);
  RawMpiProcess(const RawMpiProcess&) = delete;
  RawMpiProcess& operator=(const RawMpiProcess&) = delete;
  ~RawMpiProcess();  // ends it

  // Seconds of one of `calls` calls, after one more that is not measured; with 0 calls it checks
  // the output of one. Throws Error with what it says, if it ended, or if it says nothing for 100
  // s.
  double ask(const CommCase& c, std::int64_t calls);

 private:
  pid_t process_ = -1;
  int socket_ = -1;  // its standard input and output
};

}  // namespace aisc
