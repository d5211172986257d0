// Google Benchmark's view of the module: every variant, generator and way of learning, by itself,
// on 1, 2, 4 ... threads. Numbers that are to be compared come from demo.cpp, which takes turns.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <cmath>
#include <iostream>
#include <map>

#include "01_mutex_mae/descent.h"
#include "01_mutex_mae/mae.h"
#include "01_mutex_mae/mae_gpu.h"
#include "01_mutex_mae/metropolis.h"
#include "01_mutex_mae/random.h"
#include "01_mutex_mae/rounds.h"
#include "01_mutex_mae/variants.h"
#include "bench/run_benchmarks.h"
#include "common/core/flags/program.h"

namespace aisc {
namespace {

constexpr std::int64_t kFeatures = 32;

struct Data {
  Problem problem;
  double serial = 0;
};

// What all benchmarks use; made when the first one needs it.
class Bench {
 public:
  Bench() : counts_(thread_counts(available_cores())), threads_(counts_) {}

  const std::vector<int>& counts() const { return counts_; }
  Team& team(int threads) const { return threads_.team(threads); }
  void prepare(RunsOn runs_on, int threads) const {
    BoundThreads::end_openmp();
    if (runs_on == RunsOn::OpenMp) threads_.bind_openmp(threads);
  }
  const Data& data(std::int64_t mib) {
    Data& data = data_[mib];
    if (data.problem.N == 0) {
      data.problem = make_problem((mib << 20) / 4 / kFeatures, kFeatures);
      data.serial = mae_serial(data.problem);
    }
    return data;
  }

 private:
  std::vector<int> counts_;
  BoundThreads threads_;
  std::map<std::int64_t, Data> data_;
};

template <class Run>
void add(const std::string& name, Run run) {
  constexpr double kSeconds = 0.25;  // a row; all within a minute
  benchmark::RegisterBenchmark(name.c_str(), run)
      ->UseRealTime()
      ->MinTime(kSeconds)
      ->Unit(benchmark::kMicrosecond);
}

// Of so many bytes; the mean may be off by so much, relative to the serial one.
template <class Run>
void time_sum(benchmark::State& state, std::int64_t mib, double serial, double tolerance,
              const Run& run) {
  double worst = 0;
  for (auto _ : state) worst = std::max(worst, std::fabs(run() - serial) / serial);
  state.SetBytesProcessed(state.iterations() * (mib << 20));
  state.counters["error"] = worst;
  if (!(worst <= tolerance)) state.SkipWithError("a wrong sum");
}

void add_sums(Bench& bench) {
  for (const std::int64_t mib : {1, 256})
    for (const Variant& variant : variants())
      for (const int threads : bench.counts()) {
        if (threads > 1 && variant.runs_on == RunsOn::Caller) continue;
        const auto run = [&bench, variant, threads, mib](benchmark::State& state) {
          const Data& data = bench.data(mib);
          bench.prepare(variant.runs_on, threads);
          time_sum(state, mib, data.serial, variant.tolerance,
                   [&] { return variant.run(data.problem, bench.team(threads)); });
        };
        std::string name = variant.name;
        std::replace(name.begin(), name.end(), ' ', '_');
        add(fmt::format("sum/{}MiB/{}/threads:{}", mib, name, threads), run);
      }
}

void add_sums_on_gpu(Bench& bench) {
  if (gpu_count() == 0) {
    std::cerr << "sums on a GPU are left out: this program sees none\n";
    return;
  }
  for (const GpuVariant& variant : gpu_variants()) {
    std::string name = variant.name.substr(variant.name.find(' ') + 1);
    add("sum/256MiB/gpu_" + name, [&bench, variant](benchmark::State& state) {
      const Data& data = bench.data(256);
      const auto gpu = make_device({.kind = DeviceKind::Cuda});
      const GpuProblem problem(data.problem, *gpu);
      time_sum(state, 256, data.serial, kOrderOfProducts, [&] { return variant.run(problem); });
    });
  }
}

void add_random(Bench& bench) {
  using Fill = std::function<void(std::span<double>, Team&)>;
  const std::vector<std::pair<const char*, Fill>> fills = {
      {"one_behind_a_mutex",
       [](std::span<double> out, Team& team) {
         CountedMutex mutex;
         fill_locked(out, 1, team, mutex);
       }},
      {"one_per_thread", [](std::span<double> out, Team& team) { fill_per_thread(out, 1, team); }},
      {"counter_based", [](std::span<double> out, Team& team) { fill_counter(out, 1, team); }}};
  for (const auto& [name, fill] : fills)
    for (const int threads : bench.counts())
      add(fmt::format("random/{}/threads:{}", name, threads),
          [&bench, way = fill, threads](benchmark::State& state) {
            std::vector<double> out(1 << 18);
            bench.prepare(RunsOn::Team, threads);
            for (auto _ : state) way(out, bench.team(threads));
            state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(out.size()));
          });
}

void add_learning(Bench& bench) {
  for (const int threads : bench.counts()) {
    const auto learn = [&bench, threads](benchmark::State& state, auto train) {
      const Problem& problem = bench.data(1).problem;
      bench.prepare(RunsOn::Team, threads);
      const DescentOptions options{.epochs = 1, .batch = 64, .learning_rate = 0.001};
      for (auto _ : state)
        if (!std::isfinite(train(problem, bench.team(threads), options).loss.back()))
          state.SkipWithError("the loss is not finite");
      state.SetItemsProcessed(state.iterations() * problem.N);
    };
    add(fmt::format("epoch/synchronous/threads:{}", threads),
        [learn](benchmark::State& state) { learn(state, train_synchronous); });
    add(fmt::format("epoch/hogwild/threads:{}", threads),
        [learn](benchmark::State& state) { learn(state, train_hogwild); });
    add(fmt::format("metropolis/step/threads:{}", threads),
        [&bench, threads](benchmark::State& state) {
          constexpr std::int64_t kSteps = 20;
          const Problem& problem = bench.data(1).problem;
          bench.prepare(RunsOn::Team, threads);
          for (auto _ : state) metropolis(problem, bench.team(threads), {.steps = kSteps});
          state.SetItemsProcessed(state.iterations() * kSteps);
        });
  }
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::run_program("bench_01_mutex_mae", [&] {
    aisc::Bench bench;
    aisc::add_sums(bench);
    aisc::add_sums_on_gpu(bench);
    aisc::add_random(bench);
    aisc::add_learning(bench);
    return aisc::run_benchmarks(argc, argv);
  });
}
