// Ctrl-C, SIGTERM and SIGUSR1 ask the run to end after the step in progress; a second Ctrl-C ends
// the process at once. SIGUSR1, since mpirun hands it on to all ranks at once and goes on waiting
// (app/mpirun.h); on SIGTERM it ends them itself, host after host. A second SIGTERM changes
// nothing: Slurm sends one to mpirun and to the ranks, and then mpirun sends its own.
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
  struct sigaction previous_int_, previous_term_, previous_usr1_;
};

}  // namespace aisc
