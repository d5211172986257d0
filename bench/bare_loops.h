// What one would write by hand for ranks that are threads of one process: a barrier, a plain loop
// over everybody's buffers, a barrier. No library, no checks, no errors; what a communication
// library on threads is measured against.
#pragma once

#include <atomic>
#include <vector>

#include "bench/comm_case.h"

namespace aisc {

class BareLoops {
 public:
  // Ranks that wait spin if `cores` suffice for all, else let others run.
  BareLoops(int ranks, int cores);

  // The buffers of a rank, before all ranks' first call.
  void set_buffers(int rank, float* in, float* out);

  // Called by all ranks, each from a thread of its own; returns when all are done.
  void run(const CommCase& c, int rank);
  void barrier(int rank);

 private:
  struct alignas(128) Flag {  // two cache lines: processors fetch lines in pairs
    std::atomic<long> arrivals{0};
  };
  struct Range {
    std::int64_t begin, end;
  };
  Range range_of(int rank, std::int64_t count) const;

  const int ranks_, cores_;
  std::vector<Flag> flags_;
  std::vector<float*> ins_, outs_;
};

}  // namespace aisc
