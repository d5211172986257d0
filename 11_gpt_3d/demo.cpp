// One step of training on several ranks that hold the whole model each: who does what when, what it
// takes in memory beside what the formulas say, and what recomputing saves. With --json also the
// course on one page: a step of eight ranks that share data, stages and layers, in virtual time
// (docs/virtual_time.md); and such a step of a model with experts.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "11_gpt_3d/step_of.h"
#include "app/plan.h"
#include "common/comm/launch.h"
#include "common/core/flags/program.h"
#include "common/core/system/files.h"
#include "common/core/system/machine.h"
#include "common/core/system/polite_waits.h"
#include "common/model/emulated_device.h"
#include "common/train/timeline.h"
#include "common/train/trainer.h"

namespace aisc {
namespace {

// --- ranks that hold the whole model ------------------------------------------------------------

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
    step = {std::move(timeline), rank.device.ledger(), trainer.parameters().layout().count()};
  });
  return step;
}

std::string predicted(const Step& step, const TrainConfig& config, int ranks) {
  const auto N = static_cast<double>(step.parameters);
  const PredictedBytes formulas[] = {{Purpose::Parameters, "4 N", 4 * N},
                                     {Purpose::Gradients, "4 N", 4 * N},
                                     {Purpose::Optimizer, "8 N", 8 * N},
                                     {Purpose::Activations, "a step without numbers",
                                      plan_step(config, ranks, {}).needed.activations}};
  return bytes_table(step.ledger, formulas);
}

// --- ranks that share data, stages and layers ---------------------------------------------------

using Json = nlohmann::ordered_json;

// Servers of two processors: the parts of a layer inside one, stages and replicas between them.
constexpr const char* kMachine = "xeon-8180";
constexpr MeshShape kMesh{.dp = 2, .pp = 2, .tp = 2};

// Its sizes let each form of communication be seen beside the computing.
Options shared_by_all() {
  Options o;
  o.ranks = kMesh.ranks();
  o.train.model = {.layers = 4, .heads = 8, .width = 256, .context = 256, .vocabulary = 1024};
  o.train.batch = 16;
  o.train.micro_batches = 4;
  o.train.pp = kMesh.pp;
  o.train.tp = kMesh.tp;
  o.data_parallel.bucket_mb = 1;
  return o;
}

// The same model with experts in every other block, four ranks of a stage with two of them each;
// tokens are shared between layers, AdamW's states by the data-parallel ranks.
Options shared_with_experts() {
  Options o = shared_by_all();
  o.train.model.experts = {.count = 8, .router = "top2"};
  o.train.micro_batches = 2;
  o.train.ep = kMesh.dp;
  o.sp = true;
  o.sharding.zero = 1;
  return o;
}

struct SharedStep {
  double begin = 0, seconds = 0;                // of rank 0's clock
  std::vector<std::vector<TraceEvent>> events;  // by rank
};

// The second step again, without numbers.
SharedStep shared_step(const Options& options) {
  const std::vector<std::uint8_t> zeros(1 << 16);
  const Machine machine = find_machine(kMachine);
  SharedStep step{.events = std::vector<std::vector<TraceEvent>>(kMesh.ranks())};
  launch(on_machine(machine, options.ranks, {.meta = true}), [&](const Rank& rank) {
    Trainer trainer(rank, options.train, step_of(options));
    const BatchSampler data(zeros, options.train.model.context, options.train.seed);
    trainer.step(data);
    rank.world.barrier();
    rank.trace.record(true);
    const double begin = rank.clock.now();
    trainer.step(data);
    rank.trace.record(false);
    step.events[static_cast<std::size_t>(rank.world.rank())] = rank.trace.events();
    if (rank.world.rank() == 0) {
      step.begin = begin;
      step.seconds = rank.clock.now() - begin;
    }
  });
  return step;
}

// What each rank did, and beside it what its communicators did.
Json shared_json(const Options& options) {
  const GptConfig& model = options.train.model;
  const SharedStep step = shared_step(options);
  Json ranks = Json::array();
  for (std::size_t r = 0; r < step.events.size(); ++r) {
    const MeshPlace place = place_of(static_cast<int>(r), kMesh);
    Json events = Json::array(), communicators = Json::array();
    for (const TraceEvent& e : step.events[r])
      (e.lane == 0 ? events : communicators)
          .push_back({{e.lane == 0 ? "part" : "communicator", e.part},
                      {"name", e.name},
                      {"begin", e.begin_seconds - step.begin},
                      {"end", e.end_seconds - step.begin}});
    ranks.push_back({{"rank", r},
                     {"dp", place.dp},
                     {"pp", place.pp},
                     {"tp", place.tp},
                     {"events", std::move(events)},
                     {"communicators", std::move(communicators)}});
  }
  return {{"machine", kMachine},
          {"ranks_per_node", find_machine(kMachine).ranks_per_node},
          {"model",
           {{"layers", model.layers},
            {"width", model.width},
            {"context", model.context},
            {"vocabulary", model.vocabulary},
            {"experts", model.experts.count},
            {"router", model.experts.router}}},
          {"batch", options.train.batch},
          {"micro_batches", options.train.micro_batches},
          {"schedule", options.pipeline.schedule},
          {"seconds", step.seconds},
          {"ranks", std::move(ranks)}};
}

void run(int ranks, const std::string& svg) {
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
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  int ranks = 2;
  std::string svg;
  return aisc::measuring_program(
      argc, argv, "Draws one step of training on several ranks, and what it takes in memory.",
      [&](aisc::CommandLine& line) {
        line.number("--ranks", ranks, 1, 8, "that each hold the model");
        line.text("--svg", svg, "also draw the step into this file");
      },
      [&] {
        aisc::run(ranks, svg);
        aisc::Json json = aisc::shared_json(aisc::shared_by_all());
        json["with_experts"] = aisc::shared_json(aisc::shared_with_experts());
        return json;
      });
}
