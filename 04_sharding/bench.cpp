// How fast the pieces of this module are on this machine: what gathers and scatters cost beside the
// bytes that they move, and an update with AdamW beside one with Adafactor.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

#include "04_sharding/adafactor.h"
#include "04_sharding/sharded_units.h"
#include "bench/rank_benchmark.h"
#include "bench/run_benchmarks.h"
#include "common/nn/linear.h"

namespace aisc {
namespace {

constexpr int kRanks = 2, kLayers = 8;
constexpr std::int64_t kWidth = 1024;

// Layers of a million weights each, a unit a layer.
Model linear_layers(const Rank& rank, int layers, std::int64_t in, std::int64_t out) {
  Model model;
  for (int i = 0; i < layers; ++i)
    model.layers.push_back(std::make_unique<Linear>(rank, "layers." + std::to_string(i), in, out));
  return model;
}

std::int64_t bytes_of_layers() { return 4 * kLayers * kWidth * (kWidth + 1); }

// Gathers every layer's weights in turn and frees them. Bytes: of all weights.
void gather(benchmark::State& state) {
  on_ranks(state, kRanks, [&](const Rank& rank) {
    const auto model = std::make_shared<Model>(linear_layers(rank, kLayers, kWidth, kWidth));
    const auto s = std::make_shared<Sharded>(
        shard(rank, *model, 3, {.gather = {.prefetch = static_cast<int>(state.range(0))}}));
    return [model, s] {
      for (std::size_t layer = 0; layer < model->layers.size(); ++layer)
        s->units->before_forward(layer, {});
      s->units->finish();
    };
  });
  state.SetBytesProcessed(state.iterations() * bytes_of_layers());
}
BENCHMARK(gather)->Name("gather/prefetch")->Arg(0)->Arg(1)->UseManualTime();

// Scatters every layer's gradients. Bytes: of all gradients. 0: units as they are; else so many
// elements at a time, which are copied together. Nothing wrote them: the warm-up sets them to 0.
void scatter(benchmark::State& state) {
  on_ranks(state, kRanks, [&](const Rank& rank) {
    const auto model = std::make_shared<Model>(linear_layers(rank, kLayers, kWidth, kWidth));
    const auto s = std::make_shared<Sharded>(shard(rank, *model, 1, {.bucket = state.range(0)}));
    return [model, s] {
      s->units->begin();
      for (std::size_t layer = model->layers.size(); layer-- > 0;) s->units->complete(layer);
      s->units->finish();
    };
  });
  state.SetBytesProcessed(state.iterations() * bytes_of_layers());
}
BENCHMARK(scatter)->Name("scatter/bucket")->Arg(0)->Arg(1 << 20)->Arg(1 << 16)->UseManualTime();

// A step of `Kind` on one matrix of 2500 x 4000, ten million weights; items: weights.
template <class Make>
void update(benchmark::State& state, const Make& make) {
  launch({.ranks = 1}, [&](const Rank& rank) {
    const Model model = linear_layers(rank, 1, 2500, 4000);
    ParameterStore store(rank.device, make_units(model), {});
    store.initialize(1);
    rank.device.copy(store.grads(), store.values());
    const std::unique_ptr<Optimizer> optimizer = make(rank, store);
    for (auto _ : state) optimizer->step({.learning_rate = 1e-3});
    state.SetItemsProcessed(state.iterations() * store.parameter_count());
  });
}

void adamw(benchmark::State& state) {
  update(state, [](const Rank&, const ParameterStore& store) {
    return std::make_unique<AdamW>(slices_of(store.parameters()), AdamW::Options{});
  });
}
BENCHMARK(adamw)->Name("update/adamw")->Unit(benchmark::kMillisecond)->UseRealTime();

void adafactor(benchmark::State& state) {
  update(state, [](const Rank& rank, const ParameterStore& store) {
    const std::vector<const Parameter*> all(store.parameters().begin(), store.parameters().end());
    return std::make_unique<Adafactor>(rank, all, slices_of(store.parameters()),
                                       Adafactor::Options{});
  });
}
BENCHMARK(adafactor)->Name("update/adafactor")->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) { return aisc::run_benchmarks(argc, argv); }
