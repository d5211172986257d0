// The first table of the course: what a processor can do at most is its cores, times the cycles
// that each makes in a second, times what a core does in a cycle.
#pragma once

#include <string>
#include <vector>

namespace aisc {

struct Processor {
  std::string name;
  double cores = 0;            // that can compute at the same time
  double clock_hz = 0;         // as printed
  double flops_per_cycle = 0;  // of one core; 0: not printed
  double printed_flops = 0;    // FLOP/s, as printed; 0: none
  std::string note;            // how the row was meant, as far as it can be told
};

// cores x clock x FLOPs per cycle.
double peak_flops(const Processor& processor);

// What they must be so that cores and clock give the printed FLOP/s. Needed to find out where a row
// was copied from.
double flops_per_cycle_printed(const Processor& processor);

// 16 lanes x 2 (a multiplication and an addition) x 2 units = 64, and the like. `lane_bytes` is 4
// for F32 and 8 for F64.
double flops_per_cycle(int vector_bytes, int lane_bytes, int fma_units);

// Three rows that are printed side by side in introductions, and the same rows with the clock that
// explains what is printed, or comes nearest.
std::vector<Processor> processors();

// What the owner of a processor can measure is the clock and the peak; FLOPs per cycle follow.
Processor this_machine(int cores, double clock_hz, double measured_flops);

}  // namespace aisc
