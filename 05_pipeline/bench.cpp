// How fast the pieces of this module are on this machine: a training step through the stages of one
// and of two ranks beside the plain loop, what a version of the weights costs, and how long a large
// schedule takes to check and to simulate.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>

#include "05_pipeline/check.h"
#include "05_pipeline/pipelined.h"
#include "05_pipeline/schedules.h"
#include "05_pipeline/simulate.h"
#include "05_pipeline/weight_versions.h"
#include "bench/rank_benchmark.h"
#include "bench/run_benchmarks.h"
#include "common/nn/linear.h"

namespace aisc {
namespace {

constexpr int kMicroBatches = 16;

// A GPT of 12 layers, 16 micro-batches of one sample, a thread a rank. Items: tokens.
TrainConfig config_of(int ranks) {
  TrainConfig config;
  config.model = {.layers = 12, .heads = 8, .width = 256, .context = 256, .vocabulary = 256};
  config.batch = config.micro_batches = kMicroBatches;
  config.pp = ranks;
  return config;
}

void steps(benchmark::State& state, int ranks, const StepParts& parts) {
  const TrainConfig config = config_of(ranks);
  const std::vector<std::uint8_t> text(10'000, 'a');
  on_ranks(state, ranks, [&](const Rank& rank) {
    const auto trainer = std::make_shared<Trainer>(rank, config, parts);
    return [trainer, data = BatchSampler(text, config.model.context, 1)] { trainer->step(data); };
  });
  state.SetItemsProcessed(state.iterations() * config.batch * config.model.context);
}

void in_milliseconds(benchmark::internal::Benchmark* row) {
  row->Unit(benchmark::kMillisecond)->UseManualTime();
}

void plain(benchmark::State& state) { steps(state, 1, {}); }
BENCHMARK(plain)->Name("step/plain")->Apply(in_milliseconds);

void on_two(benchmark::State& state, const std::string& schedule) {
  steps(state, 2, pipelined({.schedule = schedule, .chunks = schedule == "interleaved" ? 2 : 1}));
}
BENCHMARK_CAPTURE(on_two, f, "1f1b")->Name("step/1f1b/2")->Apply(in_milliseconds);
BENCHMARK_CAPTURE(on_two, g, "gpipe")->Name("step/gpipe/2")->Apply(in_milliseconds);
BENCHMARK_CAPTURE(on_two, i, "interleaved")->Name("step/interleaved/2")->Apply(in_milliseconds);
BENCHMARK_CAPTURE(on_two, z, "zb-h1")->Name("step/zb-h1/2")->Apply(in_milliseconds);

// A copy of ten million weights before an update, and its end. Bytes: of the copy.
void version(benchmark::State& state) {
  launch({.ranks = 1}, [&](const Rank& rank) {
    Model model;
    model.layers.push_back(std::make_unique<Linear>(rank, "linear", 2500, 4000));
    ParameterStore store(rank.device, make_units(model), {});
    store.initialize(1);
    WeightVersions versions(rank, store.parameters(), {.stages = 2});
    int micro_batch = 0;
    for (auto _ : state) {
      versions.use_for_forward(micro_batch);
      versions.update([] {});
      versions.use_for_backward(micro_batch);
      versions.done(micro_batch++);
    }
    state.SetBytesProcessed(state.iterations() * 4 * store.parameter_count());
  });
}
BENCHMARK(version)->Name("version")->Unit(benchmark::kMillisecond)->UseRealTime();

// Interleaved 1F1B of 64 ranks, 4 chunks and 256 micro-batches. Items: actions.
constexpr int kRanks = 64, kChunks = 4, kMany = 256;
void check(benchmark::State& state) {
  const Schedule schedule = interleaved(kRanks, kChunks, kMany);
  for (auto _ : state) benchmark::DoNotOptimize(problems(schedule));
  state.SetItemsProcessed(state.iterations() * 2 * kRanks * kChunks * kMany);
}
BENCHMARK(check)->Unit(benchmark::kMillisecond);

void simulated(benchmark::State& state) {
  const Schedule schedule = interleaved(kRanks, kChunks, kMany);
  for (auto _ : state)
    benchmark::DoNotOptimize(simulate(schedule, {{.forward = 1, .backward = 2}}));
  state.SetItemsProcessed(state.iterations() * 2 * kRanks * kChunks * kMany);
}
BENCHMARK(simulated)->Name("simulate")->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) { return aisc::run_benchmarks(argc, argv); }
