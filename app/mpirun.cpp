#include "app/mpirun.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "common/comm/launch.h"
#include "common/core/error.h"

namespace aisc {
namespace {

constexpr int kInterrupted = 130, kSignalled = 128;  // exit statuses, as shells have them

[[noreturn]] void become(const std::vector<char*>& arguments, pid_t parent) {
  setpgid(0, 0);  // the terminal's Ctrl-C is for the parent
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(EXIT_FAILURE);
  // Else it answers every status but 0 with many lines; what went wrong rank 0 has said.
  setenv("OMPI_MCA_orte_execute_quiet", "1", 0);
  execvp(arguments[0], arguments.data());
  fmt::print(stderr, "train_gpt: {} cannot be started: {}\n", arguments[0], std::strerror(errno));
  _exit(EXIT_FAILURE);
}

// Hands signals on until mpirun has ended. Returns its wait status.
int wait_for(pid_t mpirun, const sigset_t& signals, bool& asked) {
  int status = 0;
  for (bool at_once = false;;) {
    int number = 0;
    sigwait(&signals, &number);
    if (number == SIGCHLD) {
      if (waitpid(mpirun, &status, WNOHANG) == mpirun) return status;
    } else if (number != SIGINT || !asked) {
      kill(mpirun, SIGUSR1);
      asked = true;
    } else if (!at_once) {
      at_once = true;
      fmt::print(stderr, "\nAll ranks end at once.\n");
      kill(mpirun, SIGUSR2);  // who has stopped, mpirun ends when it sees the others gone
    }
  }
}

}  // namespace

int run_mpirun(int ranks, const std::vector<std::string>& program) {
  std::vector<std::string> words = mpirun_command(ranks, program);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  signal(SIGCHLD, SIG_DFL);
  sigset_t signals, before;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD}) sigaddset(&signals, number);
  sigprocmask(SIG_BLOCK, &signals, &before);
  const pid_t self = getpid(), child = fork();
  if (child < 0) fail(fmt::format("{} cannot be started: {}", words[0], std::strerror(errno)));
  if (child == 0) {
    sigprocmask(SIG_SETMASK, &before, nullptr);
    become(arguments, self);
  }
  bool asked = false;
  const int ended = wait_for(child, signals, asked);
  sigprocmask(SIG_SETMASK, &before, nullptr);

  const int status = WIFEXITED(ended) ? WEXITSTATUS(ended) : kSignalled + WTERMSIG(ended);
  // Also of ranks that had not begun, or did not wait for their step.
  for (const int expected : {kInterrupted, kSignalled + SIGUSR1, kSignalled + SIGUSR2})
    if (asked && status == expected) return kInterrupted;
  if (status != 0)
    fmt::print(stderr,
               "train_gpt: mpirun ended with status {}; OMPI_MCA_orte_execute_quiet=0 in the "
               "environment lets it say more\n",
               status);
  return status;
}

}  // namespace aisc
