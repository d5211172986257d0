// How fast the pieces of this module are on this machine: a block of gpt2-124m forward and backward
// on one thread and shared by two ranks of a thread each, the loss of its vocabulary, and a
// convolution of one image, whole and in two parts.
#include <benchmark/benchmark.h>

#include <memory>

#include "06_tensor_parallel/more/spatial_split.h"
#include "06_tensor_parallel/parallel_block.h"
#include "bench/rank_benchmark.h"
#include "bench/run_benchmarks.h"
#include "common/nn/driver.h"
#include "common/nn/parameter_store.h"

namespace aisc {
namespace {

constexpr std::int64_t kTokens = 1024;

// A GPT of one block with gpt2-124m's sizes, between its embedding and the loss, or without them.
enum class What { Block, Gpt };
void model(benchmark::State& state, int ranks, What what, std::int64_t vocabulary) {
  on_ranks(state, ranks, [&](const Rank& rank) {
    const GptConfig config{.layers = 1, .context = kTokens, .vocabulary = vocabulary};
    const GptParts parts = ranks > 1 ? tensor_parallel_parts(rank.world) : gpt2_parts();
    const auto all = std::make_shared<Model>(make_gpt(rank, config, parts));
    const auto store =
        std::make_shared<ParameterStore>(rank.device, make_units(*all), ParameterStore::Options{});
    store->initialize(1);
    Tensor tokens = Tensor::zeros({1, kTokens}, DType::I32, rank.device);
    Tensor x = Tensor::zeros({1, kTokens, config.width}, DType::F32, rank.device);
    return [all, store, tokens = std::move(tokens), x = std::move(x), what] {
      store->clear_grads();
      if (what == What::Gpt) {
        forward_backward(*all, tokens, tokens, {}, 1.0 / kTokens);
        return;
      }
      const LayerRange block{3, 4};  // behind embedding, positions and dropout
      std::vector<Saved> saved(1);
      forward_layers(*all, block, x.clone(), saved, {});
      backward_layers(*all, block, x.clone(), saved, {});
    };
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
  on_ranks(state, ranks, [&](const Rank& rank) {
    const auto convolution = std::make_shared<SpatialConvolution>(
        rank, rank.world, same_size({.rows = ranks, .columns = 1}, kSide, kSide, 3));
    Tensor filters = Tensor::zeros({kChannels, kChannels, 3, 3}, DType::F32, rank.device);
    Tensor x = Tensor::zeros({1, kChannels, kSide / ranks, kSide}, DType::F32, rank.device);
    return [convolution, filters = std::move(filters), x = std::move(x)] {
      Saved saved;
      const Tensor y = convolution->forward(x, filters, saved);
      convolution->backward(y, filters, saved);
    };
  });
  state.SetItemsProcessed(state.iterations() * kSide * kSide);
}
BENCHMARK_CAPTURE(image, 1, 1)->Name("image/1")->Unit(benchmark::kMillisecond)->UseManualTime();
BENCHMARK_CAPTURE(image, 2, 2)->Name("image/2")->Unit(benchmark::kMillisecond)->UseManualTime();

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) { return aisc::run_benchmarks(argc, argv); }
