#include "11_gpt_3d/train_program.h"

#include <fmt/format.h>
#include <malloc.h>
#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <functional>
#include <iostream>
#include <new>
#include <optional>
#include <thread>

#include "11_gpt_3d/placement.h"
#include "11_gpt_3d/step_of.h"
#include "11_gpt_3d/train_emulated.h"
#include "11_gpt_3d/train_sizes.h"
#include "app/limits.h"
#include "app/mpirun.h"
#include "app/plan.h"
#include "app/recorded_flags.h"
#include "app/run.h"
#include "app/saved_model.h"
#include "common/comm/host_values.h"
#include "common/comm/launch.h"
#include "common/core/error.h"
#include "common/core/flags/program.h"
#include "common/core/flags/terminal_text.h"
#include "common/core/system/machine.h"
#include "common/core/system/memory.h"
#include "common/core/system/polite_waits.h"
#include "common/core/system/threads.h"

namespace aisc {
namespace {

// Longer than rank 0 may take to write a checkpoint or a sample, for which the others wait.
constexpr double kTimeoutSeconds = 600;

// Of processes; threads are all of process 0.
int process_rank() {
  const std::optional<Processes> processes = started_processes();
  return processes ? processes->rank : 0;
}

// A launcher that sees one process end by an error ends the others: rank 0 speaks first.
int after_rank_0(int status) {
  if (process_rank() > 0 && status != 0) std::this_thread::sleep_for(std::chrono::seconds(1));
  return status;
}

// Runs `body` on every rank and returns what it returns, on rank 0 of threads. Ranks are not bound
// to cores: a rank whose core another program uses as well would hold up all the others in every
// step.
int on_ranks(const Options& options, const std::function<int(const Rank&)>& body) {
  int status = 0;
  LaunchOptions launch_options{.ranks = options.ranks,
                               .timeout_seconds = kTimeoutSeconds,
                               .plans = plans_of(options),
                               .device = parse_device(options.device),
                               .bind = false};
  launch_options.device.capacity_bytes = std::llround(options.device_memory_gb * 1e9);
  try {
    launch(launch_options, [&](const Rank& launched) {
      const auto world = placed_as(options, launched.world);
      const Rank rank{world ? *world : launched.world, launched.device, launched.clock,
                      launched.trace};
      if (options.threads > 0) {
        omp_set_num_threads(std::max(1, options.threads / options.ranks));
        start_team(omp_get_max_threads());
      }
      const int result = body(rank);
      if (rank.world.rank() == 0 || started_processes()) status = result;
    });
  } catch (const std::exception&) {  // of processes rank 0's says it
    if (process_rank() == 0) throw;
    return 1;
  }
  return status;
}

// Processes read for themselves, perhaps on nodes that do not see the same files.
void require_same_start(const Rank& rank, std::int64_t step, std::uint64_t corpus_hash) {
  const std::int64_t mine[] = {step, static_cast<std::int64_t>(corpus_hash)};
  const std::vector<std::int64_t> theirs = all_numbers(rank.world, mine);  // comm: 16 bytes of each
  if (theirs[0] != mine[0])
    fail(
        fmt::format("the newest checkpoint here is of step {}, rank 0 goes on from step {}: all "
                    "ranks must see the same files",
                    mine[0], theirs[0]));
  if (theirs[1] != mine[1])
    fail(
        fmt::format("the corpus here (hash {:016x}) is not rank 0's ({:016x}): all ranks must see "
                    "the same files",
                    corpus_hash, static_cast<std::uint64_t>(theirs[1])));
}

// Has mpirun start this program once a rank. Returns the exit status.
int start_ranks(int ranks, int argc, char** argv) {
  std::vector<std::string> program{std::filesystem::read_symlink("/proc/self/exe").string()};
  program.insert(program.end(), argv + 1, argv + argc);
  Cores(usable_cores()).release();  // of the one that OpenMP may have bound this thread to
  return run_mpirun(ranks, program);
}

// Which share its memory.
int ranks_of_this_machine(const Options& options) {
  const std::optional<Processes> processes = started_processes();
  return processes ? processes->here : options.ranks;
}

// Which take address space for their stacks: ranks or their teams, those that look after messages
// and other programs, and those that sleep along (common/core/system/polite_waits.h).
int threads_of_this_process(const Options& options, int threads) {
  const std::optional<Processes> processes = started_processes();
  const int computing =
      processes ? std::max(1, threads / processes->here) : std::max(threads, options.ranks);
  return computing + 3 + available_cores();
}

// A run is gone on with by its own program.
void require_program(const Checkpoint& checkpoint, const std::string& config,
                     const ProgramOptions& program) {
  const std::string its = recorded_program(config);
  if (its != program.name)
    fail(fmt::format("{}: a run of {}, expected one of {}", checkpoint.path, its, program.name));
}

int start(const TrainProgram& program, int argc, char** argv) {
  if (process_rank() > 0)  // process 0 tells what is wrong with the flags
    for (std::ostream* stream : {&std::cout, &std::cerr}) stream->setstate(std::ios::failbit);
  const Options defaults = program.defaults();
  const std::string& name = defaults.program.name;
  ParsedOptions parsed = parse_options(argc, argv, "{}", defaults);
  std::optional<RunLock> lock;
  std::optional<Checkpoint> checkpoint;
  if (parsed.options && !parsed.options->resume.empty()) {
    const std::string& path = parsed.options->resume;
    if (process_rank() == 0) lock.emplace(run_of(path));  // a run that goes on removes checkpoints
    checkpoint = find_checkpoint(path, [](const std::string& damage) {
      say_once(damage + "; an earlier checkpoint is taken");
    });
    const std::string earlier = RunState::from_json(checkpoint->state, checkpoint->path).config;
    require_program(*checkpoint, earlier, defaults.program);
    parsed = parse_options(argc, argv, earlier, defaults);
    if (parsed.options) say_once(layout_set_aside(earlier, *parsed.options, argc, argv));
  }
  if (!parsed.options) return after_rank_0(parsed.exit_code);
  Options& options = *parsed.options;
  if (options.launcher == "mpirun" && !started_processes()) {
    lock.reset();  // rank 0 takes it
    return start_ranks(options.ranks, argc, argv);
  }
  for (const std::string& remark : options.remarks) say_once(remark);
  const int threads = options.threads > 0 ? options.threads : available_cores();
  omp_set_num_threads(threads);
  const std::optional<std::int64_t> address_space = address_space_left();
  if (address_space) mallopt(M_ARENA_MAX, 1);  // else threads reserve 64 MiB each for their own
  const std::optional<Processes> processes = started_processes();
  const PoliteWaits waits(std::max(1, threads / (processes ? processes->here : 1)));
  if (!options.machine.empty()) return run_emulated(program, options);
  if (!options.from.empty()) {
    // mpirun hands a signal on to all processes; what rank 0 is told counts, and others must not
    // end by one that comes before they listen, or after the text.
    if (process_rank() > 0) std::signal(SIGUSR1, SIG_IGN);
    return on_ranks(options, [&](const Rank& rank) { return program.use(rank, options); });
  }

  if (!options.init.empty()) options.init = weights_at(options.init, say_once);  // looked for once
  if (checkpoint) require_same_model(*checkpoint, options);
  const std::unique_ptr<const Task> task =
      program.open(options, checkpoint ? checkpoint->path + "/model.safetensors" : options.init);
  try {
    complete_sizes(options, *task, say_once);
  } catch (const Error& e) {
    if (!checkpoint) throw;
    fail(std::string(e.what()) + "\n" + where_flags_come_from(options.resume));
  }
  say_once(fit_savings(options));
  const PlannedStep planned = plan_of(options);
  MemoryRequest memory{.needed = planned.needed,
                       .ranks = ranks_of_this_machine(options),
                       .eval_tokens = options.eval_windows * options.train.model.context};
  if (parse_device(options.device).kind == DeviceKind::Cpu)
    require_memory(memory, available_memory());
  if (processes) memory.ranks = 1;
  if (address_space && parse_device(options.device).kind == DeviceKind::Cpu)
    require_address_space(memory, threads_of_this_process(options, threads), *address_space);
  const std::string no_memory = out_of_memory(memory);
  const OutOfMemoryReport report(name + ": " + no_memory);
  std::vector<std::string> words(argv, argv + argc);
  words[0] = name;
  const RunFacts started{.command = shell_words(words), .cores = available_cores()};
  return on_ranks(options, [&](const Rank& rank) {
    require_same_start(rank, checkpoint ? checkpoint->step : 0, task->hash());
    RunFacts facts = started;
    if (const auto gpu = gpu_facts(rank.device)) facts.device = gpu->name;
    make_tier(options, rank);
    try {
      PeakMeter peak(rank, options.train.model.dtype, options.peak * 1e9);
      return Run(rank, options, *task, checkpoint ? &*checkpoint : nullptr, facts, peak,
                 step_of(options), options.plan ? &planned.books : nullptr)
          .train();
    } catch (const std::bad_alloc&) {
      fail(no_memory);
    }
  });
}

}  // namespace

void say_once(const std::string& line) {
  if (process_rank() == 0 && !line.empty()) fmt::print("{}\n", for_terminal(line));
}

int run_training(const TrainProgram& program, int argc, char** argv) {
  const std::string name = program.defaults().program.name;
  return run_program(name, [&] {
    if (process_rank() == 0) return start(program, argc, argv);
    // What is wrong in one process alone, its rank tells: what is wrong in all, rank 0 has said by
    // then, and the launcher ends the others.
    try {
      return start(program, argc, argv);
    } catch (const std::exception& e) {
      const int status = after_rank_0(1);
      fmt::print(stderr, "{}: rank {}: {}\n", name, process_rank(), for_terminal(e.what()));
      return status;
    }
  });
}

}  // namespace aisc
