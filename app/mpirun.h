// What --launcher mpirun does: mpirun as a child of this process, which takes the signals.
#pragma once

#include <string>
#include <vector>

namespace aisc {

// Starts `program`, with its arguments, as so many processes of this machine, waits until none of
// them runs any more, and returns the exit status: mpirun's, which is that of the first rank with
// another than 0; after a signal 128 + its number, of the first that came here.
//
// mpirun by itself answers Ctrl-C by ending the ranks within a second, and its status is then 1. So
// it does not get that signal here. SIGINT, SIGTERM, SIGHUP (unless it is ignored: nohup) and
// SIGUSR1 become SIGUSR1, which mpirun hands on: the ranks end after the step in progress
// (app/interrupt.h). A second SIGINT becomes SIGUSR2, which nobody catches: all ranks end at once;
// 130. A third changes nothing: mpirun does not bear signals while it ends. (Ctrl-Z stops this
// process alone.) Where this process ends, mpirun does. The ranks learn whether this process's
// output is a terminal (app/progress.h). Call it while there is one thread. Throws Error where
// mpirun cannot be started, or may have too few files for so many ranks, or too short ones.
int run_mpirun(int ranks, const std::vector<std::string>& program);

}  // namespace aisc
