// tune: which values of some flags make a run quickest (tuner.h). See --help.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "11_gpt_3d/step_of.h"
#include "11_gpt_3d/tuner.h"
#include "common/comm/launch.h"
#include "common/core/error.h"
#include "common/core/flags/command_line.h"
#include "common/core/flags/program.h"
#include "common/core/flags/terminal_text.h"
#include "common/core/system/files.h"
#include "common/core/system/machine.h"
#include "common/core/system/memory.h"
#include "common/core/system/polite_waits.h"

namespace aisc {
namespace {

constexpr const char* kHelp =
    R"(tune says which values of some flags of train make a step quickest, and why others are none.

usage: tune [--space "zero=0,1,3 micro-batches=1,2,4"] [--best 4] [--json FILE] [--show 10]
            (--machine NAME | --profile FILE) [flags of train]

  --space    the flags that may change, with their values; default: tp, pp, micro-batches, zero and
             recompute, as far as they divide ranks, layers and heads and are not given; and then
             of the best few, one after the other, also sp, schedule, chunks, cp, ep, zero-group and
             offload
  --machine  in virtual time, on a machine of `./aisc machines` or of a profile
  --profile  for real: what `./aisc doctor --profile FILE` wrote of this machine says which runs
             are worth a measurement
  --best     so many of these are measured
  --show     so many of those that fit are shown
  --json     write all runs to this file

Every run is tried without numbers first. Those that flags' own rules refuse, or that need more memory
than there is (--device-memory-gb, the machine's, or what is free here), are dropped, and it is said why.
)";

struct Flags {
  std::string space, profile, machine, json;
  int best = 4, show = 10;
  std::vector<std::string> others;
  bool help = false;
};

// Takes what is tune's own, and leaves what train reads.
Flags flags_of(int argc, const char* const* argv) {
  Flags f;
  const auto take = [&](int& i, const char* name, std::string& value) {
    const std::string_view word = argv[i];
    const std::string before = std::string(name) + "=";
    if (word.starts_with(before)) return value = word.substr(before.size()), true;
    if (word != name) return false;
    if (i + 1 == argc) fail(fmt::format("{}: expected a value behind it", name));
    return value = argv[++i], true;
  };
  std::string best, show;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--help" || word == "-h")
      f.help = true;
    else if (!take(i, "--space", f.space) && !take(i, "--profile", f.profile) &&
             !take(i, "--machine", f.machine) && !take(i, "--json", f.json) &&
             !take(i, "--best", best) && !take(i, "--show", show))
      f.others.emplace_back(word);
  }
  if (!best.empty()) f.best = static_cast<int>(whole_number("--best", best, 1, 1000));
  if (!show.empty()) f.show = static_cast<int>(whole_number("--show", show, 1, 100'000));
  if (f.help) return f;
  if (f.machine.empty() == f.profile.empty()) fail("expected --machine or --profile, one of them");
  return f;
}

// The middle one of so many steps, behind one that fills caches.
double step_seconds(const Options& o, int steps) {
  const int threads = o.threads > 0 ? o.threads : available_cores();
  const PoliteWaits waits(threads);
  double seconds = 0;
  launch({.ranks = o.ranks, .device = parse_device(o.device), .bind = false},
         [&](const Rank& rank) {
           omp_set_num_threads(std::max(1, threads / o.ranks));
           make_tier(o, rank);
           Trainer trainer(rank, o.train, step_of(o));
           const auto data = blank_samples(o);
           trainer.step(*data);
           std::vector<double> all;
           for (int i = 0; i < steps; ++i) {
             rank.world.barrier();
             const double begin = rank.clock.now();
             trainer.step(*data);
             rank.device.synchronize();
             all.push_back(rank.clock.now() - begin);
           }
           std::sort(all.begin(), all.end());
           if (rank.world.rank() == 0) seconds = all[all.size() / 2];
         });
  return seconds;
}

nlohmann::ordered_json as_json(const TunedRun& run) {
  nlohmann::ordered_json row{{"flags", run.flags}};
  if (run.bytes > 0) row["bytes"] = run.bytes;
  if (run.seconds > 0) row["seconds"] = run.seconds;
  if (run.measured > 0) row["measured"] = run.measured;
  if (!run.dropped.empty()) row["dropped"] = run.dropped;
  return row;
}

void print(const std::vector<TunedRun>& runs, const Options& common, int show) {
  const auto fits = std::count_if(runs.begin(), runs.end(),
                                  [](const TunedRun& run) { return run.dropped.empty(); });
  fmt::print("{} runs: {} fit, {} are dropped\n\n", runs.size(), fits, std::ssize(runs) - fits);
  const double tokens = static_cast<double>(common.train.batch * common.train.model.context);
  if (fits > 0)
    fmt::print("{:>5}{:>12}{:>14}{:>10}{:>12}  flags\n", "", "measured", "virtual time", "GB",
               "tokens/s");
  int place = 0;
  for (const TunedRun& run : runs) {
    if (!run.dropped.empty() || place == show) break;
    // Beside measured seconds those of virtual time say nothing but an order.
    const double seconds = runs.front().measured > 0 ? run.measured : run.seconds;
    const auto known = [](double figure) {
      return std::isfinite(figure) && figure > 0 ? fmt::format("{:.4g}", figure) : "";
    };
    fmt::print("{:>5}{:>12}{:>14.4g}{:>10.4g}{:>12}  {}\n", ++place, known(run.measured),
               run.seconds, run.bytes / 1e9, known(tokens / seconds), fmt::join(run.flags, " "));
  }
  // Those that need too much are one reason, with the one that needs the least.
  std::map<std::string, std::vector<const TunedRun*>> why;
  std::vector<const TunedRun*> large;
  for (const TunedRun& run : runs)
    if (!run.dropped.empty()) (run.bytes > 0 ? large : why[run.dropped]).push_back(&run);
  std::sort(large.begin(), large.end(),
            [](const TunedRun* a, const TunedRun* b) { return a->bytes < b->bytes; });
  if (!large.empty())
    why[large.size() > 1 ? "at least " + large[0]->dropped : large[0]->dropped] = large;
  if (!why.empty()) fmt::print("\ndropped:\n");
  for (const auto& [reason, all] : why)
    fmt::print("{}\n", for_terminal(fmt::format("{:>5}  {} ({})", all.size(), reason,
                                                fmt::join(all.front()->flags, " "))));
}

int run(int argc, const char* const* argv) {
  const Flags f = flags_of(argc, argv);
  if (f.help) {
    fmt::print("{}", kHelp);
    return 0;
  }
  std::vector<const char*> words{"tune"};
  for (const std::string& flag : f.others) words.push_back(flag.c_str());
  const ParsedOptions common = parse_options(static_cast<int>(words.size()), words.data());
  if (!common.options) return common.exit_code;
  const Options& o = *common.options;
  TunerOptions tuner{.flags = f.others,
                     .space = f.space.empty() ? usual_space(o) : parse_space(f.space),
                     .moves = f.space.empty() ? usual_moves(o) : TuningSpace{},
                     .machine = f.machine.empty() ? f.profile : f.machine,
                     .limit = o.device_memory_gb * 1e9};
  if (f.machine.empty()) {
    tuner.best = f.best;
    tuner.measure = step_seconds;
    if (tuner.limit == 0 && parse_device(o.device).kind == DeviceKind::Cpu)
      tuner.limit = static_cast<double>(available_memory()) / o.ranks;
  }
  const bool shows = isatty(STDERR_FILENO) == 1;  // large machines take minutes
  if (shows) tuner.tell = [](std::size_t tried) { fmt::print(stderr, "\r{} runs tried", tried); };
  const std::vector<TunedRun> runs = tune(tuner);
  if (shows) fmt::print(stderr, "\n");
  print(runs, o, f.show);
  if (!f.json.empty()) {
    nlohmann::ordered_json all;
    for (const TunedRun& run : runs) all.push_back(as_json(run));
    write_file(f.json, all.dump(1) + "\n");
  }
  return runs.front().dropped.empty() ? 0 : 1;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::run_program("tune", [&] { return aisc::run(argc, argv); });
}
