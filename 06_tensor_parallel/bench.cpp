// How fast the pieces of this module are on this machine: a block of gpt2-124m forward and backward
// on one thread and shared by two ranks of a thread each, the loss of its vocabulary, and a
// convolution of one image, whole and in two parts.
#include <benchmark/benchmark.h>
#include <omp.h>

#include <functional>
#include <memory>

#include "06_tensor_parallel/parallel_block.h"
#include "06_tensor_parallel/spatial_split.h"
#include "common/comm/launch.h"
#include "common/core/system/polite_waits.h"
#include "common/nn/driver.h"
#include "common/nn/parameter_store.h"

namespace aisc {
namespace {

// Seconds of one call of what `make` returns on each of so many ranks, a thread each: rank 0's.
using Call = std::function<void()>;
void time_on(
    benchmark::State& state, int ranks,
    const std::function<void(const Rank&, const std::function<void(const Call&)>&)>& body) {
  const PoliteWaits waits(ranks);
  constexpr int kCalls = 5;
  for (auto _ : state) {
    double seconds = 0;
    launch({.ranks = ranks}, [&](const Rank& rank) {
      omp_set_num_threads(1);
      body(rank, [&](const Call& call) {
        call();
        rank.world.barrier();
        const double begin = rank.clock.now();
        for (int i = 0; i < kCalls; ++i) call();
        if (rank.world.rank() == 0) seconds = rank.clock.now() - begin;
      });
    });
    state.SetIterationTime(seconds / kCalls);
  }
}

constexpr std::int64_t kTokens = 1024;

// A GPT of one block with gpt2-124m's sizes, between its embedding and the loss, or without them.
enum class What { Block, Gpt };
void model(benchmark::State& state, int ranks, What what, std::int64_t vocabulary) {
  time_on(state, ranks, [&](const Rank& rank, const auto& timed) {
    const GptConfig config{.layers = 1, .context = kTokens, .vocabulary = vocabulary};
    const GptParts parts = ranks > 1 ? tensor_parallel_parts(rank.world) : gpt2_parts();
    Model all = make_gpt(rank, config, parts);
    ParameterStore store(rank.device, make_units(all), {});
    store.initialize(1);
    const Tensor tokens = Tensor::zeros({1, kTokens}, DType::I32, rank.device);
    const Tensor x = Tensor::zeros({1, kTokens, config.width}, DType::F32, rank.device);
    timed([&] {
      store.clear_grads();
      if (what == What::Gpt) {
        forward_backward(all, tokens, tokens, {}, 1.0 / kTokens);
        return;
      }
      const LayerRange block{3, 4};  // behind embedding, positions and dropout
      std::vector<Saved> saved(1);
      forward_layers(all, block, x.clone(), saved, {});
      backward_layers(all, block, x.clone(), saved, {});
    });
  });
  state.SetItemsProcessed(state.iterations() * kTokens);
}
void block(benchmark::State& state, int ranks) { model(state, ranks, What::Block, 256); }
BENCHMARK_CAPTURE(block, 1, 1)->Name("block/1")->Unit(benchmark::kMillisecond)->UseManualTime();
BENCHMARK_CAPTURE(block, 2, 2)->Name("block/2")->Unit(benchmark::kMillisecond)->UseManualTime();

void gpt(benchmark::State& state, int ranks) { model(state, ranks, What::Gpt, 50257); }
BENCHMARK_CAPTURE(gpt, 1, 1)->Name("gpt/1")->Unit(benchmark::kMillisecond)->UseManualTime();
BENCHMARK_CAPTURE(gpt, 2, 2)->Name("gpt/2")->Unit(benchmark::kMillisecond)->UseManualTime();

// An image of 16 channels and 256 x 256 pixels, 3 x 3 filters to 16 more, forward and backward.
// Items: pixels.
void image(benchmark::State& state, int ranks) {
  constexpr std::int64_t kSide = 256, kChannels = 16;
  time_on(state, ranks, [&](const Rank& rank, const auto& timed) {
    const SpatialConvolution convolution(rank, rank.world,
                                         {.grid = {.rows = ranks, .columns = 1},
                                          .rows = kSide,
                                          .columns = kSide,
                                          .filter_rows = 3,
                                          .filter_columns = 3,
                                          .row_padding = 1,
                                          .column_padding = 1});
    const Tensor filters = Tensor::zeros({kChannels, kChannels, 3, 3}, DType::F32, rank.device);
    const Tensor x = Tensor::zeros({1, kChannels, kSide / ranks, kSide}, DType::F32, rank.device);
    timed([&] {
      Saved saved;
      const Tensor y = convolution.forward(x, filters, saved);
      convolution.backward(y, filters, saved);
    });
  });
  state.SetItemsProcessed(state.iterations() * kSide * kSide);
}
BENCHMARK_CAPTURE(image, 1, 1)->Name("image/1")->Unit(benchmark::kMillisecond)->UseManualTime();
BENCHMARK_CAPTURE(image, 2, 2)->Name("image/2")->Unit(benchmark::kMillisecond)->UseManualTime();

}  // namespace
}  // namespace aisc

BENCHMARK_MAIN();
