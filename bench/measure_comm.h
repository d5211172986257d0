// Measures collectives of threads and of processes, and in the same rounds what they are compared
// with.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/comm_case.h"

namespace aisc {

// Who takes part: a backend, and of this library's the algorithm that it runs collectives by.
struct Contender {
  // thread (this library, ranks as threads), bare (loops over shared memory), mpi (this library,
  // ranks as processes), mpi-check or raw-mpi. Those of MPI need MpiProcesses::available().
  std::string backend;
  std::string algorithm{};   // without a name as the backend does it best; only thread and mpi
  std::string name() const;  // "mpi", "mpi:ring"
};

// One line of the table. algbw and busbw follow from seconds, bytes and the operation.
struct CommRow {
  std::string backend;  // the contender's name
  CommCase what;
  double seconds;              // of a call, median of the rounds
  std::vector<double> rounds;  // of each; round i of all rows of a case ran one after another
  double algbw() const { return static_cast<double>(what.bytes()) / seconds; }  // bytes/s
  double busbw() const { return algbw() * what.bus_factor(); }
};

// Seconds that a cache line takes from one core to another and back: the unit of all latencies
// here. Best of several; needs two cores.
double measure_round_trip();

struct MeasureOptions {
  std::vector<CommCase> cases;  // grouped by ranks
  double seconds = 60;          // for all of them; no case has fewer than 5 rounds
  std::function<std::vector<Contender>(const CommCase&)> contenders;
  // Of contenders that have one: for threads here, for processes in the rank program.
  AlgorithmTable algorithms{};
  std::string rank_program = "mpi_ranks";  // see MpiProcesses
};

// Calls `rows` for each case with a row for each contender. In each round each contender makes as
// many calls as take a millisecond, the ranks kept in step by the operation itself; the order is
// another one in each round. Outputs are checked before; throws Error if one is wrong.
void measure_comm(const MeasureOptions& options,
                  const std::function<void(std::span<const CommRow>)>& rows);

}  // namespace aisc
