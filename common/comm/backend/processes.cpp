// What launchers of MPI programs tell their processes by the environment, and how mpirun is called.
#include "common/comm/launch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "common/core/error.h"
#include "common/core/system/machine.h"

namespace aisc {
namespace {

// What a launcher tells each process; the first whose variables are all there counts.
struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
};
constexpr std::array kLaunchers{
    Launcher{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},  // Open MPI
    Launcher{"mpiexec", "PMI_RANK", "PMI_SIZE"},  // MPICH, Intel MPI; srun --mpi=pmi2
    Launcher{"srun", "PMIX_RANK", "SLURM_STEP_NUM_TASKS"},
};

int number(const char* variable, const char* text) {
  int value = 0;
  const std::string_view all = text;
  const auto [end, problem] = std::from_chars(all.data(), all.data() + all.size(), value);
  if (problem != std::errc() || end != all.data() + all.size() || value < 0)
    fail(fmt::format("the environment has {}={}, a number was expected", variable, text));
  return value;
}

// The first of these on the PATH.
std::string find_program(std::initializer_list<const char*> names) {
  const char* path = std::getenv("PATH");
  for (const char* name : names) {
    std::string_view rest = path ? path : "";
    while (!rest.empty()) {
      const std::size_t end = rest.find(':');
      const auto file = std::filesystem::path(rest.substr(0, end)) / name;
      if (access(file.c_str(), X_OK) == 0) return file.string();
      rest = end == std::string_view::npos ? "" : rest.substr(end + 1);
    }
  }
  return {};
}

}  // namespace

std::optional<Processes> started_processes() {
  for (const Launcher& launcher : kLaunchers) {
    const char *rank = std::getenv(launcher.rank), *size = std::getenv(launcher.size);
    if (!rank || !size) continue;
    Processes processes{launcher.name, number(launcher.rank, rank), number(launcher.size, size)};
    for (const char* variable : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"})
      if (const char* here = std::getenv(variable)) processes.here = number(variable, here);
    // A step of one task, such as srun --pty bash, is a place to work in.
    if (processes.size == 1 && std::getenv("SLURM_STEP_ID") && launcher.rank != kLaunchers[0].rank)
      continue;
    if (processes.rank >= processes.size)
      fail(fmt::format("the environment has {}={} and {}={}: a smaller rank was expected",
                       launcher.rank, rank, launcher.size, size));
    return processes;
  }
  // Tasks of Slurm that MPI does not see. (A batch script has SLURM_NTASKS, but no step.)
  const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  if (tasks && number("SLURM_STEP_NUM_TASKS", tasks) > 1)
    fail(
        fmt::format("srun started {} processes that know nothing of each other: use srun "
                    "--mpi=pmix, or mpirun in the job (`srun --mpi=list` shows what there is)",
                    tasks));
  return {};
}

std::vector<std::string> mpirun_command(int ranks, const std::vector<std::string>& program) {
  const std::string mpirun = find_program({"mpirun", "mpiexec"});
  if (mpirun.empty())
    fail("mpirun was not found on the PATH (Debian and Ubuntu: openmpi-bin and libopenmpi-dev)");
  // Of Open MPI 4 and 5, which other MPIs ignore.
  std::vector<std::string> command{"env", "OMPI_MCA_hwloc_base_binding_policy=none",
                                   "OMPI_MCA_rmaps_base_oversubscribe=1",
                                   "PRTE_MCA_hwloc_default_binding_policy=none",
                                   "PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe"};
  if (ranks > available_cores()) command.emplace_back("OMPI_MCA_mpi_yield_when_idle=1");
  if (geteuid() == 0) {
    command.emplace_back("OMPI_ALLOW_RUN_AS_ROOT=1");
    command.emplace_back("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1");
  }
  command.insert(command.end(), {mpirun, "-n", std::to_string(ranks)});
  command.insert(command.end(), program.begin(), program.end());
  return command;
}

}  // namespace aisc
