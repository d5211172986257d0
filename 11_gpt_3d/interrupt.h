// Ctrl-C (and SIGTERM): the first asks the run to end after the step in progress, the second ends
// the process at once.
#pragma once

#include <csignal>

namespace aisc {

// Listens while it lives; one at a time in a process, since signals belong to the process.
class Interrupt {
 public:
  // says: whether a line on the standard error answers the signal. Processes of one job all get it.
  explicit Interrupt(bool says = true);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool requested() const;

 private:
  struct sigaction previous_int_, previous_term_;
};

}  // namespace aisc
