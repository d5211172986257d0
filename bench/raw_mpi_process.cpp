#include "bench/raw_mpi_process.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <vector>

#include "common/core/error.h"
#include "common/core/machine.h"

namespace aisc {
namespace {

constexpr int kAnswerMilliseconds = 100'000;

// Built beside this program.
std::string raw_mpi_path() {
  return std::filesystem::read_symlink("/proc/self/exe").replace_filename("raw_mpi").string();
}

// Settings of Open MPI 4 and 5, as environment, which other MPIs ignore: no binding to cores, since
// the ranks may be more; then also yielding while waiting; root is welcome.
std::vector<std::string> command_line(int ranks) {
  return {"env",
          "OMPI_ALLOW_RUN_AS_ROOT=1",
          "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
          "OMPI_MCA_hwloc_base_binding_policy=none",
          "OMPI_MCA_rmaps_base_oversubscribe=1",
          "PRTE_MCA_hwloc_default_binding_policy=none",
          "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe",
          fmt::format("OMPI_MCA_mpi_yield_when_idle={}", ranks > available_cores() ? 1 : 0),
          AISC_MPIEXEC,
          "-n",
          std::to_string(ranks),
          raw_mpi_path()};
}

}  // namespace

bool RawMpiProcess::available() {
  return access(AISC_MPIEXEC, X_OK) == 0 && access(raw_mpi_path().c_str(), X_OK) == 0;
}

RawMpiProcess::RawMpiProcess(int ranks) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    fail(fmt::format("raw-mpi: no socket: {}", std::strerror(errno)));
  socket_ = ends[0];
  std::vector<std::string> words = command_line(ranks);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  const int error =
      posix_spawnp(&process_, arguments[0], &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    close(socket_);
    fail(fmt::format("raw-mpi: {} cannot be started: {}", AISC_MPIEXEC, std::strerror(error)));
  }
}

RawMpiProcess::~RawMpiProcess() {
  close(socket_);  // its input ends; so does it
  for (int waited_ms = 0; waitpid(process_, nullptr, WNOHANG) == 0; waited_ms += 10) {
    if (waited_ms == 5000) kill(process_, SIGTERM);  // mpirun then ends its ranks
    if (waited_ms == 10'000) kill(process_, SIGKILL);
    usleep(10'000);
  }
}

double RawMpiProcess::ask(const CommCase& c, std::int64_t calls) {
  const std::string line = fmt::format("{} {} {}\n", name_of(c.op()), c.bytes(), calls);
  std::string answer;
  bool alive =
      send(socket_, line.data(), line.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(line.size());
  while (alive && (answer.empty() || answer.back() != '\n')) {
    pollfd ready{socket_, POLLIN, 0};
    const int events = poll(&ready, 1, kAnswerMilliseconds);
    if (events == 0)
      fail(fmt::format("raw-mpi: no answer to '{} {} {}' within {} s", name_of(c.op()), c.bytes(),
                       calls, kAnswerMilliseconds / 1000));
    char byte = 0;
    alive = events > 0 && read(socket_, &byte, 1) == 1;
    if (alive) answer += byte;
  }
  if (!alive)
    fail(fmt::format("raw-mpi: mpirun with {} ranks ended by itself; --no-mpi leaves it out",
                     c.ranks()));
  answer.pop_back();
  double seconds = 0;
  const char* end = answer.data() + answer.size();
  const auto [rest, problem] = std::from_chars(answer.data(), end, seconds);
  if (problem != std::errc() || rest != end) fail("raw-mpi: " + answer);
  return seconds;
}

}  // namespace aisc
