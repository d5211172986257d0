#include "app/mpirun.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "app/interrupt.h"
#include "app/progress.h"
#include "common/comm/launch.h"
#include "common/core/error.h"
#include "common/core/system/memory.h"
#include "common/core/system/process_limits.h"

namespace aisc {
namespace {

using namespace std::chrono_literals;

// Of Open MPI 4.1, which beside 22 files has up to 5 open for each rank, a few more for moments,
// and begins with files of 4 MiB of what it tells the ranks. Below that it loops, hangs or crashes.
constexpr std::int64_t kFiles = 32, kFilesOfRank = 8, kSharedFileBytes = 5 << 20;
// Ranks that outlive mpirun see that it has gone, and end. Who does not is stuck, or has stopped.
constexpr auto kPatience = 10s;

// Whether this process's output is a terminal, and of which width, for the ranks' Progress.
void tell_terminal() {
  winsize size{};
  if (isatty(STDOUT_FILENO) != 1) {
    unsetenv(kTerminalColumns);
    return;
  }
  ioctl(STDOUT_FILENO, TIOCGWINSZ, &size);
  setenv(kTerminalColumns, std::to_string(size.ws_col).c_str(), 1);
}

[[noreturn]] void become(const std::vector<char*>& arguments, pid_t parent) {
  setpgid(0, 0);  // the terminal's Ctrl-C is for the parent
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(EXIT_FAILURE);
  tell_terminal();
  // Threads reserve 64 MiB of address space each for memory of their own, or share it.
  if (address_space_left()) setenv("MALLOC_ARENA_MAX", "1", 0);
  // Else it answers every status but 0 with many lines; what went wrong rank 0 has said.
  setenv("OMPI_MCA_orte_execute_quiet", "1", 0);
  execvp(arguments[0], arguments.data());
  std::fprintf(stderr, "%s cannot be started: %s\n", arguments[0], std::strerror(errno));
  _exit(EXIT_FAILURE);
}

// What happens while mpirun runs.
struct Asked {
  int by = 0;  // the number of the first signal that came here; 0: none did
  bool at_once = false;
};

// Hands signals on until mpirun has ended. Returns its wait status. Children that are not mpirun
// are ranks that have lost it.
int wait_for(pid_t mpirun, const sigset_t& signals, Asked& asked) {
  for (;;) {
    int number = 0, status = 0;
    sigwait(&signals, &number);
    if (number == SIGCHLD) {
      for (pid_t child = 1; child > 0;)
        if ((child = waitpid(-1, &status, WNOHANG)) == mpirun) return status;
    } else if (number != SIGINT || asked.by == 0) {
      kill(mpirun, SIGUSR1);
      if (asked.by == 0) asked.by = number;
    } else if (!asked.at_once) {
      asked.at_once = true;
      std::fputs("\nAll ranks end at once.\n", stderr);
      kill(mpirun, SIGUSR2);  // who has stopped, mpirun ends when it sees the others gone
    }
  }
}

// Waits for the ranks that mpirun has left: they are children of this process by now. Those that do
// not end by themselves are killed, after a while or by another Ctrl-C.
void wait_for_ranks(const sigset_t& signals) {
  auto deadline = std::chrono::steady_clock::now() + kPatience;
  constexpr timespec kLook{0, 50'000'000};
  for (;;) {
    pid_t child = 1;
    while (child > 0) child = waitpid(-1, nullptr, WNOHANG);
    if (child < 0) return;  // there are none
    if (sigtimedwait(&signals, nullptr, &kLook) == SIGINT) deadline = {};
    if (std::chrono::steady_clock::now() < deadline) continue;
    std::ifstream children(fmt::format("/proc/self/task/{}/children", getpid()));
    for (pid_t left = 0; children >> left;) kill(left, SIGKILL);
    if (!children.is_open()) return;  // this system does not tell
  }
}

}  // namespace

int run_mpirun(int ranks, const std::vector<std::string>& program) {
  require_open_files(kFiles + kFilesOfRank * ranks, fmt::format("mpirun of {} ranks", ranks));
  require_file_bytes(kSharedFileBytes, "mpirun, for what it tells the ranks,");
  std::vector<std::string> words = mpirun_command(ranks, program);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  signal(SIGCHLD, SIG_DFL);
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // ranks that lose mpirun become children of this process
  sigset_t signals, before;
  sigemptyset(&signals);
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGCHLD}) sigaddset(&signals, number);
  if (hangup_is_ignored())
    signal(SIGHUP, SIG_IGN);  // and by mpirun
  else
    sigaddset(&signals, SIGHUP);
  sigprocmask(SIG_BLOCK, &signals, &before);
  const pid_t self = getpid(), child = fork();
  if (child < 0) fail(fmt::format("{} cannot be started: {}", words[0], std::strerror(errno)));
  if (child == 0) {
    sigprocmask(SIG_SETMASK, &before, nullptr);
    become(arguments, self);
  }
  Asked asked;
  const int ended = wait_for(child, signals, asked);
  wait_for_ranks(signals);
  sigprocmask(SIG_SETMASK, &before, nullptr);

  const int status = WIFEXITED(ended) ? WEXITSTATUS(ended) : status_of_signal(WTERMSIG(ended));
  if (asked.at_once) asked.by = SIGINT;
  // Also of ranks that had not begun, or did not wait for their step; or that were asked
  // themselves.
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2})
    if (status == status_of_signal(number))
      return asked.by != 0 ? status_of_signal(asked.by) : status;
  if (status != 0)
    std::fputs(fmt::format("mpirun ended with status {}; OMPI_MCA_orte_execute_quiet=0 "
                           "in the environment lets it say more\n",
                           status)
                   .c_str(),
               stderr);
  return status;
}

}  // namespace aisc
