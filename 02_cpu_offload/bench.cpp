// How fast the pieces of this module are on this machine: the host's AdamW beside the bandwidth of
// its memory and beside a plain one, weights that come and go, and the search for a plan.
#include <benchmark/benchmark.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "02_cpu_offload/host_update.h"
#include "02_cpu_offload/host_weights.h"
#include "02_cpu_offload/saving_plan.h"
#include "bench/rank_benchmark.h"
#include "bench/run_benchmarks.h"
#include "common/core/system/machine.h"
#include "common/core/system/threads.h"
#include "common/nn/linear.h"

namespace aisc {
namespace {

constexpr std::int64_t kCount = 1 << 26;  // 67 million weights: no cache has them
constexpr int kLayers = 8;
constexpr std::int64_t kWidth = 1024;

struct Updated {
  Updated(const Rank& rank, DType weights) {
    weight = Tensor::zeros({kCount}, weights, rank.device, Purpose::Parameters);
    gradient = Tensor::zeros({kCount}, weights, rank.device, Purpose::Gradients);
    ops::fill(gradient, 1e-3);
  }
  std::vector<OptimizerSlice> slices() const {
    return {{.name = "w", .weight = weight.view(), .gradient = gradient.view(), .decay = true}};
  }
  Tensor weight, gradient;
};

// Bytes that are read and written: of F32 four numbers and three, of BF16 three of F32 each way,
// the gradient and the weight.
void adamw(benchmark::State& state, DType dtype) {
  launch({.ranks = 1, .bind = false}, [&](const Rank& rank) {
    const Updated updated(rank, dtype);
    AdamW optimizer(updated.slices(), {});
    for (auto _ : state) optimizer.step({.learning_rate = 1e-3});
  });
  state.SetBytesProcessed(state.iterations() * kCount * 28);
}
BENCHMARK_CAPTURE(adamw, f32, DType::F32)->Name("adamw/f32")->UseRealTime();
BENCHMARK_CAPTURE(adamw, bf16, DType::BF16)->Name("adamw/bf16")->UseRealTime();

// With pieces that are copied: on one machine "there" is other memory of the same.
void host_update(benchmark::State& state) {
  launch({.ranks = 1, .bind = false}, [&](const Rank& rank) {
    const Updated updated(rank, DType::BF16);
    HostUpdate optimizer(rank, updated.slices(), {});
    for (auto _ : state) optimizer.step({.learning_rate = 1e-3});
  });
  state.SetBytesProcessed(state.iterations() * kCount * (28 + 8));
}
BENCHMARK(host_update)->Name("host_update/bf16")->UseRealTime();

// As a library does it that has operations on whole tensors: one pass over memory for each. Bytes:
// those that the update needs.
void plain(benchmark::State& state) {
  const auto count = static_cast<std::size_t>(kCount);
  std::vector<float> w(count), m(count), v(count), g(count, 1e-3F), t(count);
  const auto each = [&](auto f) {
#pragma omp parallel for simd
    for (std::size_t i = 0; i < count; ++i) f(i);
  };
  for (auto _ : state) {
    each([&](std::size_t i) { w[i] *= 1 - 1e-4F; });
    each([&](std::size_t i) { m[i] *= .9F; });
    each([&](std::size_t i) { m[i] += .1F * g[i]; });
    each([&](std::size_t i) { v[i] *= .95F; });
    each([&](std::size_t i) { v[i] += .05F * g[i] * g[i]; });
    each([&](std::size_t i) { t[i] = std::sqrt(v[i]); });
    each([&](std::size_t i) { t[i] += 1e-8F; });
    each([&](std::size_t i) { w[i] -= 1e-3F * m[i] / t[i]; });
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * kCount * 28);
}
BENCHMARK(plain)->Name("plain_adamw/f32")->UseRealTime();

// As much memory, without arithmetic to speak of: what the update could reach at most.
void stream(benchmark::State& state) {
  const auto count = static_cast<std::size_t>(kCount);
  std::vector<float> w(count), m(count), v(count), g(count, 1e-3F);
  float *pw = w.data(), *pm = m.data(), *pv = v.data(), *pg = g.data();
  for (auto _ : state) {
#pragma omp parallel for simd
    for (std::size_t i = 0; i < count; ++i) {
      pm[i] += pg[i];
      pv[i] += pg[i];
      pw[i] += pg[i];
    }
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * kCount * 28);
}
BENCHMARK(stream)->Name("stream/f32")->UseRealTime();

// Every layer's weights come and go once forward and once backward.
void come_and_go(benchmark::State& state) {
  on_ranks(state, 1, [&](const Rank& rank) {
    const auto model = std::make_shared<Model>();
    for (int i = 0; i < kLayers; ++i)
      model->layers.push_back(
          std::make_unique<Linear>(rank, "layers." + std::to_string(i), kWidth, kWidth));
    const auto store = std::make_shared<ParameterStore>(
        rank.device, make_units(*model),
        ParameterStore::Options{.values = false, .gradients = false});
    const auto weights = std::make_shared<HostWeights>(rank, *model, *store);
    return [model, store, weights] {
      Saved saved;
      weights->begin();
      for (std::size_t layer = 0; layer < model->layers.size(); ++layer)
        weights->before_forward(layer, {});
      for (std::size_t layer = model->layers.size(); layer-- > 0;) {
        weights->before_backward(layer, {}, saved);
        weights->after_backward(layer, {});
      }
      weights->finish();
    };
  });
  state.SetBytesProcessed(state.iterations() * (3 * kLayers - 1) * 4 * kWidth * (kWidth + 1));
}
BENCHMARK(come_and_go)->Name("come_and_go/f32")->UseManualTime();

void search(benchmark::State& state) {
  std::vector<LayerCost> layers;
  std::int64_t all = 0;
  for (std::int64_t i = 0; i < state.range(0); ++i) {
    layers.push_back({.forward_seconds = 1 + .1 * static_cast<double>(i % 3),
                      .backward_seconds = 2,
                      .copy_seconds = 1.3,
                      .saved_bytes = 1000 + 100 * (i % 5),
                      .input_bytes = 90});
    all += layers.back().saved_bytes;
  }
  for (auto _ : state) benchmark::DoNotOptimize(fastest_within(layers, all / 3));
}
BENCHMARK(search)->Name("search/layers")->Arg(12)->Arg(40)->Arg(100)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) { return aisc::run_benchmarks(argc, argv); }
