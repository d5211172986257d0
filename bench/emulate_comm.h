// The same operations in virtual time, on a network that one describes: the default plans run for
// real, and only the seconds are those of the network.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/comm_case.h"
#include "common/comm/network.h"
#include "common/core/trace.h"

namespace aisc {

// The default plan's seconds on a flat network (docs/collectives.md); nothing where ranks are on
// several nodes, since cards are shared in ways that no short formula tells.
std::optional<double> seconds_by_formula(const CommCase& c, const Network& network);

class CommEmulator {
 public:
  // pace: wall seconds that pass per virtual second, at least; 0: as fast as it goes.
  explicit CommEmulator(double pace) : pace_(pace) {}

  // Virtual seconds until the last rank is done. Throws Error if an output is wrong.
  double run(const CommCase& c, const Network& network);

  // All runs in turn in one picture of Chrome's trace format, a process for each rank.
  void write_trace(const std::string& path) const;

 private:
  struct Event {
    int rank;
    TraceEvent span;
  };
  const double pace_;
  double begin_seconds_ = 0;  // of the next run in the picture
  std::vector<Event> events_;
};

}  // namespace aisc
