// A rank program of a benchmark: the operations done by this library on processes. Started under
// mpirun by the benchmark (mpi_processes.h); obeys the commands of rank_command.h.
#pragma once

#include "bench/comm_case.h"

namespace aisc {

// All that main() of such a program does. Collectives may be asked for by the algorithms of the
// table. Returns the exit status; what goes wrong is told on the standard error.
//
// usage: mpirun -n 2 <program> [check]
// check: the calls of all ranks are compared, as programs have it if they do not ask otherwise.
int serve_ranks(int argc, char** argv, const AlgorithmTable& algorithms = {});

}  // namespace aisc
