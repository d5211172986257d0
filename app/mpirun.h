// What --launcher mpirun does: mpirun as a child of this process, which takes the signals.
#pragma once

#include <string>
#include <vector>

namespace aisc {

// Starts `program`, with its arguments, as so many processes of this machine, waits, and returns
// the exit status: mpirun's, which is that of the first rank with another than 0.
//
// mpirun by itself answers Ctrl-C by ending the ranks within a second, and its status is then 1. So
// it does not get that signal here. SIGINT, SIGTERM and SIGUSR1 become SIGUSR1, which mpirun hands
// on: the ranks end after the step in progress (app/interrupt.h), with 130. A second SIGINT becomes
// SIGUSR2, which nobody catches: all ranks end at once; 130. A third changes nothing: mpirun does
// not bear signals while it ends. (Ctrl-Z stops this process alone.) Where this process ends,
// mpirun does. Call it while there is one thread. Throws Error where mpirun cannot be started.
int run_mpirun(int ranks, const std::vector<std::string>& program);

}  // namespace aisc
