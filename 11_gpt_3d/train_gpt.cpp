// train_gpt: trains a GPT on text, or generates text with a trained one. See --help, and more.md in
// this folder.
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

#include "05_pipeline/pipelined.h"
#include "11_gpt_3d/coded_weights.h"
#include "11_gpt_3d/placement.h"
#include "11_gpt_3d/step_of.h"
#include "app/dataset.h"
#include "app/emulated_run.h"
#include "app/limits.h"
#include "app/mpirun.h"
#include "app/plan.h"
#include "app/recorded_flags.h"
#include "app/run.h"
#include "app/saved_model.h"
#include "app/weights_file.h"
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

void say(const std::string& line) {
  if (process_rank() == 0) fmt::print("{}\n", for_terminal(line));
}

void say_remark(const std::string& line) {
  if (!line.empty()) say(line);
}

std::int64_t heads_given(const Options& options) {  // 0: they are not
  return options.given.contains("heads") ? options.train.model.heads : 0;
}

int generate_text(const Rank& rank, const Options& options) {
  const std::string weights = weights_at(options.from, say);
  const std::string path =
      options.data.tokenizer.empty() ? tokenizer_beside(weights) : options.data.tokenizer;
  if (path.empty())
    fail(weights +
         ": there is no tokenizer beside it; --tokenizer names a folder with "
         "tokenizer.json, or vocab.json and merges.txt");
  const Tokenizer tokenizer = path == "bytes" ? Tokenizer::bytes() : Tokenizer::read(path);
  const bool first = rank.world.rank() == 0;
  std::optional<Interrupt> interrupt;  // one a process, there before rank 0 says anything
  if (first || started_processes()) interrupt.emplace(first);
  const Safetensors file(weights);
  const std::int64_t heads = heads_given(options);
  SavedModel saved = text_model(rank, file, options);
  if (first && heads == 0) say_remark(heads_remark(file, saved.config));
  if (heads != 0 && heads != saved.config.heads)
    fail(fmt::format("--heads {}: {} has {}", heads, weights, saved.config.heads));
  const double begin = rank.clock.now();
  const StreamedText text =
      stream_text(rank, saved.model, saved.config, tokenizer, options.prompt, options.sample,
                  interrupt ? &*interrupt : nullptr, saved.ranks());
  if (!first) return 0;
  const double seconds = rank.clock.now() - begin;
  const Usage held = rank.device.ledger()[Purpose::Parameters];
  fmt::print(stderr, "{} tokens in {:.1f} s: {:.0f} tokens/s, with weights of {:.2f} MB\n",
             text.tokens, seconds, static_cast<double>(text.tokens) / seconds,
             static_cast<double>(held.live_bytes) / 1e6);
  return interrupt->requested() ? status_of_signal(interrupt->signal()) : 0;
}

// As many stages as the model can be cut into.
void require_stages(Options& options) {
  parse_order(options.order);
  plans_of(options);
  step_of(options);
  if (options.train.pp > 1)
    stages_of(options.train.model, options.train.pp * options.chunks());  // are there so many?
}

// The sizes of the model: those of the file of --init, which flags may not contradict, or the
// flags'; and the vocabulary, which is the data's where nobody says otherwise.
void complete_model(Options& options, const Dataset& dataset) {
  GptConfig& model = options.train.model;
  if (!options.init.empty()) {
    const Safetensors weights(options.init);
    const GptConfig file = config_in(weights, heads_given(options));
    if (heads_given(options) == 0) say_remark(heads_remark(weights, file));
    const auto take = [&](const char* flag, auto& value, const auto& found) {
      if (options.given.contains(flag) && value != found)
        fail(fmt::format("--{} {}: {} has {}", flag, value, options.init, found));
      value = found;
    };
    take("layers", model.layers, file.layers);
    take("heads", model.heads, file.heads);
    take("width", model.width, file.width);
    take("vocabulary", model.vocabulary, file.vocabulary);
    if (file.experts.count > 0) {  // else a model with some may begin with it
      take("experts", model.experts.count, file.experts.count);
      take("moe-every", model.experts.every, file.experts.every);
      take("router", model.experts.router, file.experts.router);
      take("shared-expert", model.experts.shared, file.experts.shared);
    }
    if (!options.given.contains("context")) model.context = file.context;  // may be shorter
  }
  const std::int64_t needed = dataset.vocabulary();
  if (model.vocabulary == 0) model.vocabulary = needed;
  if (model.vocabulary < needed)
    fail(options.resume.empty()
             ? fmt::format("--vocabulary {}: the corpus has {} different tokens", model.vocabulary,
                           needed)
             : fmt::format("the model in {} has {} tokens, the corpus {} different ones",
                           options.resume, model.vocabulary, needed));
  options.train.validate(options.ranks);
  require_stages(options);
  if (dataset.validation().size() <= model.context)
    fail(
        fmt::format("the corpus has {} tokens for training and {} for validation: too few for one "
                    "window of {} tokens; give more text or a smaller --context",
                    dataset.training().size(), dataset.validation().size(), model.context));
}

// A checkpoint holds a model of one shape; everything else may change on the way.
void require_same_model(const Checkpoint& checkpoint, const Options& options) {
  const std::string config = RunState::from_json(checkpoint.state, checkpoint.path).config;
  for (const ChangedFlag& change : changed_flags(config, options.to_json()))
    for (const char* fixed : {"layers", "heads", "width", "context", "vocabulary", "experts",
                              "moe-every", "router", "shared-expert"})
      if (change.flag == fixed)
        fail(fmt::format("--{} {}: the model in {} has {}", change.flag, change.now,
                         checkpoint.path, change.before));
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

// Ranks do the same as one that runs for all of them: not those that send signs, own whole units,
// or meet in groups that only they can split off.
bool one_runs_for_all(const Options& options) {
  return !options.onebit_adam() && options.sharding.by != "owners" && options.ep_node == 0;
}

// What ranks average by unequal shares depends on how many samples each has.
PlannedStep plan_of(const Options& options) {
  const bool alike = one_runs_for_all(options) && options.data_parallel.average_every == 0;
  return plan_step(options.train, options.ranks, step_of(options), alike);
}

// On machines that are not there. Without numbers no text is read: all tokens are 0.
int run_emulated(Options& options) {
  if (started_processes()) fail("--machine: ranks in virtual time are threads of one process");
  EmulatedRun run{.config = options.train,
                  .machine = find_machine(options.machine),
                  .ranks = options.ranks,
                  .meta = options.meta,
                  .steps = static_cast<int>(options.train.steps),
                  .parts = step_of(options),
                  .plans = plans_of(options),
                  .trace_file = options.trace_file,
                  .alike = one_runs_for_all(options)};
  if (options.device_memory_gb > 0) run.machine.capacity = options.device_memory_gb * 1e9;
  if (parse_order(options.order) != kMeshOrder)
    run.place = [&](Communicator& world) { return placed_as(options, world); };
  std::optional<PlannedStep> planned;
  const auto report = [&](TokenView text) {
    if (options.plan) {
      if (!planned) planned = plan_of(options);
      say(plan_text(options.train, options.ranks, planned->books));
      say_remark(bytes_by_order(options, planned->books.sent));
    }
    run.config = options.train;
    const EmulatedStep step = emulate(run, text);
    say(emulated_report(run, step, options.tokens));
    const StepBooks measured = step.books();
    if (options.plan) say(plan_text(options.train, options.ranks, planned->books, &measured));
    return 0;
  };
  const auto complete_parts = [&] {
    say_remark(fit_savings(options));
    run.parts = step_of(options);
  };
  if (options.meta) {
    if (options.train.model.vocabulary == 0) options.train.model.vocabulary = 256;
    require_stages(options);
    complete_parts();
    const std::vector<std::uint8_t> zeros(
        static_cast<std::size_t>(options.train.model.context + 1));
    return report(zeros);
  }
  const Dataset dataset = Dataset::open(options.data);
  complete_model(options, dataset);
  complete_parts();
  planned = plan_of(options);
  try {
    require_memory({.needed = planned->needed, .ranks = run.ranks}, available_memory());
  } catch (const Error& e) {
    fail(std::string(e.what()) + "; with --meta it takes none");
  }
  return report(dataset.training());
}

int run_gpt(int argc, char** argv) {
  if (process_rank() > 0)  // process 0 tells what is wrong with the flags
    for (std::ostream* stream : {&std::cout, &std::cerr}) stream->setstate(std::ios::failbit);
  ParsedOptions parsed = parse_options(argc, argv);
  std::optional<RunLock> lock;
  std::optional<Checkpoint> checkpoint;
  if (parsed.options && !parsed.options->resume.empty()) {
    const std::string& path = parsed.options->resume;
    if (process_rank() == 0) lock.emplace(run_of(path));  // a run that goes on removes checkpoints
    checkpoint = find_checkpoint(
        path, [](const std::string& damage) { say(damage + "; an earlier checkpoint is taken"); });
    const std::string earlier = RunState::from_json(checkpoint->state, checkpoint->path).config;
    parsed = parse_options(argc, argv, earlier);
    if (parsed.options) say_remark(layout_set_aside(earlier, *parsed.options, argc, argv));
  }
  if (!parsed.options) return after_rank_0(parsed.exit_code);
  Options& options = *parsed.options;
  if (options.launcher == "mpirun" && !started_processes()) {
    lock.reset();  // rank 0 takes it
    return start_ranks(options.ranks, argc, argv);
  }
  for (const std::string& remark : options.remarks) say(remark);
  const int threads = options.threads > 0 ? options.threads : available_cores();
  omp_set_num_threads(threads);
  const std::optional<std::int64_t> address_space = address_space_left();
  if (address_space) mallopt(M_ARENA_MAX, 1);  // else threads reserve 64 MiB each for their own
  const std::optional<Processes> processes = started_processes();
  const PoliteWaits waits(std::max(1, threads / (processes ? processes->here : 1)));
  if (!options.machine.empty()) return run_emulated(options);
  if (!options.from.empty()) {
    // mpirun hands a signal on to all processes; what rank 0 is told counts, and others must not
    // end by one that comes before they listen, or after the text.
    if (process_rank() > 0) std::signal(SIGUSR1, SIG_IGN);
    return on_ranks(options, [&](const Rank& rank) { return generate_text(rank, options); });
  }

  DatasetOptions data = options.data;  // as given, with the tokenizer of the weights
  if (!options.init.empty()) options.init = weights_at(options.init, say);  // looked for once
  if (data.tokenizer.empty() && (checkpoint || !options.init.empty()))
    data.tokenizer =
        tokenizer_beside(checkpoint ? checkpoint->path + "/model.safetensors" : options.init);
  if (checkpoint) require_same_model(*checkpoint, options);
  const Dataset dataset = Dataset::open(data);
  try {
    complete_model(options, dataset);
  } catch (const Error& e) {
    if (!checkpoint) throw;
    fail(std::string(e.what()) + "\n" + where_flags_come_from(options.resume));
  }
  say_remark(fit_savings(options));
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
  const OutOfMemoryReport report("train_gpt: " + no_memory);
  std::vector<std::string> words(argv, argv + argc);
  words[0] = "train_gpt";
  const RunFacts program{.command = shell_words(words), .cores = available_cores()};
  return on_ranks(options, [&](const Rank& rank) {
    require_same_start(rank, checkpoint ? checkpoint->step : 0, dataset.hash());
    RunFacts facts = program;
    if (const auto gpu = gpu_facts(rank.device)) facts.device = gpu->name;
    make_tier(options, rank);
    try {
      PeakMeter peak(rank, options.train.model.dtype, options.peak * 1e9);
      return Run(rank, options, dataset, checkpoint ? &*checkpoint : nullptr, facts, peak,
                 step_of(options), options.plan ? &planned.books : nullptr)
          .train();
    } catch (const std::bad_alloc&) {
      fail(no_memory);
    }
  });
}

// With what is wrong in one process alone, which its rank tells: what is wrong in all, rank 0 has
// said by then, and the launcher ends the others.
int run(int argc, char** argv) {
  if (process_rank() == 0) return run_gpt(argc, argv);
  try {
    return run_gpt(argc, argv);
  } catch (const std::exception& e) {
    const int status = after_rank_0(1);
    fmt::print(stderr, "train_gpt: rank {}: {}\n", process_rank(), for_terminal(e.what()));
    return status;
  }
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::run_program("train_gpt", [&] { return aisc::run(argc, argv); });
}
