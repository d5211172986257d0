// Arithmetic that takes time in virtual time and computes nothing: what overlaps what, and what a
// schedule costs, can then be computed by running the real program.
#pragma once

#include <utility>

#include "common/core/clock.h"
#include "common/core/trace.h"

namespace aisc {

class EmulatedCompute {
 public:
  // `flops_per_second`: of the rank's device, above 0. The clock must be virtual.
  EmulatedCompute(Clock& clock, Trace& trace, double flops_per_second)
      : clock_(clock), trace_(trace), flops_per_second_(flops_per_second) {}

  // Moves the clock by flops / flops_per_second, as a span of the trace.
  void run(const char* part, double flops, std::string name = {}) {
    const Trace::Span span = trace_.span(part, std::move(name));
    clock_.advance(flops / flops_per_second_);
  }

 private:
  Clock& clock_;
  Trace& trace_;
  const double flops_per_second_;
};

}  // namespace aisc
