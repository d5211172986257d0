// Measures collectives of threads and of processes, and in the same rounds what they are compared
// with.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "bench/comm_case.h"

namespace aisc {

// One line of the table. algbw and busbw follow from seconds, bytes and the operation.
struct CommRow {
  std::string backend;
  CommCase what;
  double seconds;              // of a call, median of the rounds
  std::vector<double> rounds;  // of each; round i of all backends of a case ran one after another
  double algbw() const { return static_cast<double>(what.bytes()) / seconds; }  // bytes/s
  double busbw() const { return algbw() * what.bus_factor(); }
};

// Seconds that a cache line takes from one core to another and back: the unit of all latencies
// here. Best of several; needs two cores.
double measure_round_trip();

double median(std::vector<double> values);

struct MeasureOptions {
  std::vector<CommCase> cases;  // grouped by ranks
  double seconds = 60;          // for all of them; no case has fewer than 5 rounds
  // Of thread (this library, ranks as threads), bare (loops over shared memory), mpi (this library,
  // ranks as processes), mpi-check and raw-mpi. Those of MPI need MpiProcesses::available().
  std::vector<std::string> backends{"thread", "bare"};
};

// Calls `row` for each case's backends in turn. In each round each backend makes as many calls as
// take a millisecond, the ranks kept in step by the operation itself. Outputs are checked before;
// throws Error if one is wrong.
void measure_comm(const MeasureOptions& options, const std::function<void(const CommRow&)>& row);

}  // namespace aisc
