#include "bench/mpi_processes.h"

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

#include "common/comm/launch.h"
#include "common/core/error.h"

namespace aisc {
namespace {

constexpr int kAnswerMilliseconds = 100'000;

// Where it was built; empty where MPI was not found.
constexpr const char* kRawMpi = AISC_RAW_MPI;

std::vector<std::string> program_of(const std::string& backend, const std::string& rank_program) {
  if (backend == "raw-mpi") return {kRawMpi};
  const std::string path =
      std::filesystem::read_symlink("/proc/self/exe").replace_filename(rank_program).string();
  if (backend == "mpi") return {path};
  return {path, "check"};
}

}  // namespace

bool is_mpi_backend(const std::string& backend) {
  return backend == "mpi" || backend == "mpi-check" || backend == "raw-mpi";
}

bool MpiProcesses::available() {
  if (access(kRawMpi, X_OK) != 0) return false;
  try {
    mpirun_command(1, {kRawMpi});
    return true;
  } catch (const Error&) {
    return false;
  }
}

MpiProcesses::MpiProcesses(const std::string& backend, int ranks, const std::string& rank_program)
    : backend_(backend), ranks_(ranks) {
  std::vector<std::string> words = mpirun_command(ranks, program_of(backend, rank_program));
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    fail(fmt::format("{}: no socket: {}", backend, std::strerror(errno)));
  socket_ = ends[0];
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
    fail(fmt::format("{}: {} cannot be started: {}", backend, words[0], std::strerror(error)));
  }
  // While MPI starts, ranks that wait for others take a core each. Two programs that start at once
  // could keep each other's last rank from a core: for ever, under a real-time priority.
  try {
    ask("broadcast 4 0");
  } catch (...) {
    end();
    throw;
  }
}

MpiProcesses::~MpiProcesses() { end(); }

void MpiProcesses::end() {
  close(socket_);  // its input ends; so does it
  for (int waited_ms = 0; waitpid(process_, nullptr, WNOHANG) == 0; waited_ms += 10) {
    if (waited_ms == 5000) kill(process_, SIGTERM);  // mpirun then ends its ranks
    if (waited_ms == 10'000) kill(process_, SIGKILL);
    usleep(10'000);
  }
}

double MpiProcesses::measure(const CommCase& c, std::int64_t calls, const std::string& algorithm) {
  return ask(fmt::format("{} {} {} {}", name_of(c.op()), c.bytes(), calls, algorithm)).front();
}

std::vector<double> MpiProcesses::ask(const std::string& command) {
  const std::string line = command + "\n";
  std::string answer;
  bool alive =
      send(socket_, line.data(), line.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(line.size());
  while (alive && (answer.empty() || answer.back() != '\n')) {
    pollfd ready{socket_, POLLIN, 0};
    const int events = poll(&ready, 1, kAnswerMilliseconds);
    if (events == 0)
      fail(fmt::format("{}: no answer to '{}' within {} s", backend_, command,
                       kAnswerMilliseconds / 1000));
    char byte = 0;
    alive = events > 0 && read(socket_, &byte, 1) == 1;
    if (alive) answer += byte;
  }
  if (!alive)
    fail(
        fmt::format("{}: mpirun with {} ranks ended by itself; --backends thread,bare does "
                    "without it",
                    backend_, ranks_));
  answer.pop_back();
  std::vector<double> numbers;
  const char *begin = answer.data(), *end = begin + answer.size();
  while (begin < end) {
    double number = 0;
    const auto [rest, problem] = std::from_chars(begin, end, number);
    if (problem != std::errc() || (rest != end && *rest != ' '))
      fail(fmt::format("{}: {}: {}", backend_, command, answer));
    numbers.push_back(number);
    begin = rest + 1;
  }
  if (numbers.empty()) fail(fmt::format("{}: an empty answer to '{}'", backend_, command));
  return numbers;
}

}  // namespace aisc
