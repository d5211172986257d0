// Ctrl-C (and SIGTERM): the first asks the run to end after the step in progress, the second ends
// the process at once.
#pragma once

#include <csignal>

namespace aisc {

// Listens while it lives; one at a time in a process, since signals belong to the process.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool requested() const;

 private:
  struct sigaction previous_int_, previous_term_;
};

}  // namespace aisc
