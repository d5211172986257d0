// Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 ask the run to end after the step in progress; a second
// Ctrl-C ends the process at once. SIGUSR1, since mpirun hands it on to all ranks at once and goes
// on waiting (app/mpirun.h); on SIGTERM it ends them itself, host after host. A second SIGTERM
// changes nothing: Slurm sends one to mpirun and to the ranks, and then mpirun sends its own.
// SIGHUP is what a terminal that is closed sends; where it is ignored (nohup), it stays so.
#pragma once

#include <array>
#include <csignal>

namespace aisc {

// The exit status of a run that ended since signal `number` asked it to, as shells have it: 130
// after Ctrl-C.
constexpr int status_of_signal(int number) { return 128 + number; }

// Whether SIGHUP is ignored, or was when the program began and a library has taken it since.
bool hangup_is_ignored();

// Listens while it lives; one at a time in a process, since signals belong to the process.
class Interrupt {
 public:
  // says: whether a line on the standard error answers the signal. Processes of one job all get it.
  explicit Interrupt(bool says = true);
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;

  bool requested() const { return signal() != 0; }
  int signal() const;  // the number of the first that came; 0: none did

 private:
  static constexpr std::array kSignals = {SIGHUP, SIGINT, SIGTERM, SIGUSR1};
  std::array<struct sigaction, kSignals.size()> previous_;  // of each
};

}  // namespace aisc
