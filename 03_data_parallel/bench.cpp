// How fast the pieces of this module are, against the memory that they move.
#include <benchmark/benchmark.h>

#include <span>
#include <vector>

#include "03_data_parallel/signs.h"
#include "bench/run_benchmarks.h"
#include "common/core/device.h"

namespace {

constexpr auto kBlock = static_cast<std::size_t>(aisc::kSignBlock);

// A million numbers, block by block.
struct Numbers {
  explicit Numbers(std::size_t n) : x(n, 0.5F), error(n, 0.25F), bits(n / 8), scales(n / kBlock) {}
  template <class Function>
  void each_block(Function&& function) {
    for (std::size_t b = 0; b < scales.size(); ++b)
      function(std::span(bits).subspan(b * kBlock / 8, kBlock / 8),
               std::span(x).subspan(b * kBlock, kBlock),
               std::span(error).subspan(b * kBlock, kBlock), scales[b]);
  }
  std::vector<float> x, error;
  std::vector<std::uint8_t> bits;
  std::vector<float> scales;
};

void of_numbers(benchmark::State& state, std::size_t bytes_each) {
  state.SetBytesProcessed(state.iterations() * (std::int64_t{1} << 20) *
                          static_cast<std::int64_t>(bytes_each));
}

void compress(benchmark::State& state) {
  Numbers numbers(1 << 20);
  for (auto _ : state) {
    numbers.each_block([](auto bits, auto x, auto error, float& scale) {
      scale = aisc::compress(bits, x, error);
    });
    benchmark::DoNotOptimize(numbers.scales.data());
  }
  of_numbers(state, 12);  // x and error are read, error is written
}
BENCHMARK(compress)->Name("signs/compress")->Unit(benchmark::kMicrosecond);

void decompress(benchmark::State& state) {
  Numbers numbers(1 << 20);
  for (auto _ : state) {
    numbers.each_block(
        [](auto bits, auto x, auto, float scale) { aisc::decompress(x, bits, scale); });
    benchmark::DoNotOptimize(numbers.x.data());
  }
  of_numbers(state, 4);
}
BENCHMARK(decompress)->Name("signs/decompress")->Unit(benchmark::kMicrosecond);

}  // namespace

int main(int argc, char** argv) { return aisc::run_benchmarks(argc, argv); }
