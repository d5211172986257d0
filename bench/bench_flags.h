// The flags that benchmarks of communication share: which cases, how long, who takes part.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bench/comm_case.h"
#include "common/core/flags/command_line.h"

namespace aisc {

struct BenchFlags {
  std::vector<std::string> operations;
  std::vector<int> ranks;
  std::string min_bytes, max_bytes;
  double seconds = 60;
  std::vector<std::string> backends{"thread", "bare", "mpi", "raw-mpi"};
};

// --operations, --ranks, --min-bytes, --max-bytes, --seconds, --backends. What stands in
// `flags` is the default; backends are those that there are.
void add_bench_flags(CommandLine& line, BenchFlags& flags);

// The cases, grouped by ranks. Throws Error naming the flag that makes no sense, or where their
// buffers would not fit into this machine's memory.
std::vector<CommCase> cases_of(const BenchFlags& flags);

// `backends` without those of MPI where it is absent, which is printed. Throws Error if none is
// left.
std::vector<std::string> present_backends(std::vector<std::string> backends);

// "1.5ms" -> 0.0015 with the units {"us", 1e-6}, {"ms", 1e-3}. Throws Error naming the flag.
using Units = std::vector<std::pair<std::string, double>>;
double quantity(const std::string& flag, const std::string& text, const Units& units);
// "64KiB", "8B", "8": one element to 4 GiB, else Error.
std::int64_t bytes_of(const std::string& flag, const std::string& text);

}  // namespace aisc
