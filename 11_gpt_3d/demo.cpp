// One step of training on several ranks that hold the whole model each: who does what when, what it
// takes in memory beside what the formulas say, and what recomputing saves.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "app/program.h"
#include "common/comm/launch.h"
#include "common/core/flags/command_line.h"
#include "common/core/system/files.h"
#include "common/core/system/machine.h"
#include "common/core/system/polite_waits.h"
#include "common/train/timeline.h"
#include "common/train/trainer.h"

namespace aisc {
namespace {

TrainConfig config_of(const Recompute& recompute) {
  TrainConfig c;
  c.model = {.layers = 4, .heads = 4, .width = 128, .context = 64, .vocabulary = 256};
  c.batch = 16;
  c.micro_batches = 2;
  c.recompute = recompute;
  return c;
}

struct Step {
  std::vector<TimelineRow> timeline;
  Ledger ledger;  // of rank 0
  std::int64_t parameters;
};

// The second step of a run; the first has filled the caches.
Step second_step(int ranks, int threads, const TrainConfig& config) {
  const std::vector<std::uint8_t> text(1 << 16, 'a');
  Step step{};
  std::mutex mutex;
  launch({.ranks = ranks}, [&](Rank rank) {
    omp_set_num_threads(std::max(1, threads / ranks));
    Trainer trainer(rank, config);
    const BatchSampler data(text, config.model.context, config.seed);
    trainer.step(data);
    rank.device.reset_peaks();
    rank.trace.record(true);
    trainer.step(data);
    rank.trace.record(false);
    std::vector<TimelineRow> timeline = gather_timeline(rank);
    if (rank.world.rank() > 0) return;
    const std::lock_guard lock(mutex);
    step = {std::move(timeline), rank.device.ledger(), trainer.parameters().layout().count()};
  });
  return step;
}

std::string predicted(const Step& step, const TrainConfig& config, int ranks) {
  const auto N = static_cast<double>(step.parameters);
  const TrainConfig::Bytes bytes = config.needed_bytes(ranks);
  const PredictedBytes formulas[] = {
      {Purpose::Parameters, "4 N", 4 * N},
      {Purpose::Gradients, "4 N", 4 * N},
      {Purpose::Optimizer, "8 N", 8 * N},
      {Purpose::Activations, "TrainConfig::needed_bytes", bytes.activations}};
  return bytes_table(step.ledger, formulas);
}

int run(int argc, char** argv) {
  CommandLine line("Draws one step of training on several ranks, and what it takes in memory.");
  int ranks = 2;
  std::string svg;
  line.number("--ranks", ranks, 1, 8, "that each hold the model");
  line.text("--svg", svg, "also draw the step into this file");
  if (const auto status = line.parse(argc, argv)) return *status;
  const int threads = available_cores();
  const PoliteWaits waits(threads);
  for (const char* name : {"none", "core", "block", "every:2"}) {
    const TrainConfig config = config_of(Recompute::parse(name));
    const Step step = second_step(ranks, threads, config);
    fmt::print("A step of {} ranks, recomputed: {}\n\n", ranks, name);
    if (name == std::string("none")) {
      fmt::print("{}\n", timeline_text(step.timeline));
      if (!svg.empty())
        write_file(svg, timeline_svg(step.timeline, fmt::format("One step on {} ranks", ranks)));
    }
    fmt::print("{}\n", predicted(step, config, ranks));
  }
  return 0;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::run_program("demo", [&] { return aisc::run(argc, argv); });
}
