// Where splitting a layer stops to pay: a product's part, measured here, too, one sample on many
// GPUs, memory, Megatron-LM's first models. Seconds are a machine profile's, bytes a device's
// without memory (docs/virtual_time.md).
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "06_tensor_parallel/intensity.h"
#include "06_tensor_parallel/split_step.h"
#include "common/core/error.h"
#include "common/core/flags/program.h"
#include "common/core/rng.h"
#include "common/core/system/machine.h"
#include "common/model/emulated_device.h"
#include "common/ops/ops.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

// What of a profile nobody has published.
void print_assumed(const Machine& machine) {
  fmt::print("Assumed of {} ({}):\n", machine.name, machine.says);
  constexpr std::size_t kBegin = 2, kLabel = 26;  // a line without a label has the one's before it
  std::istringstream lines(describe(machine));
  std::string label;
  for (std::string line; std::getline(lines, line);) {
    if (line.size() > kBegin && line[kBegin] != ' ') label = line.substr(kBegin, kLabel);
    if (line.find("assumed") != std::string::npos)
      fmt::print("  {}{}\n", label, line.substr(kBegin + kLabel));
  }
  fmt::print("\n");
}

GptConfig gpt(std::int64_t layers, std::int64_t width, std::int64_t heads, std::int64_t context) {
  return {layers, heads, width, context, 50257, 1024, 0, 0, DType::BF16};  // 51200 rows
}

double number(std::int64_t n) { return static_cast<double>(n); }

// --- intensity ---------------------------------------------------------------------------------

// What a machine can reach: its peak, or what its memory feeds it.
double reachable(const PartCost& part, double peak, double bandwidth) {
  return std::min(peak, part.intensity() * bandwidth);
}

Json of_a100() {
  const Machine a100 = find_machine("dgx-a100");
  const double peak = a100.peak(DType::BF16), bandwidth = a100.memory_bandwidth;
  Json rows = Json::array();
  for (const std::int64_t p : {1, 2, 4, 8, 11, 12, 16, 24, 25, 32, 64}) {
    Json row{{"p", p}};
    for (const std::int64_t n : {2048, 4096}) {
      const PartCost part = cost_of_part({n, n, n}, p);
      row[fmt::format("FLOP/B {}", n)] = part.intensity();
      row[fmt::format("TFLOP/s {}", n)] = reachable(part, peak, bandwidth) / 1e12;
    }
    rows.push_back(row);
  }
  const auto most = [&](std::int64_t n) { return most_ranks({n, n, n}, peak / bandwidth); };
  fmt::print(
      R"(A product of n x n matrices in BF16 over p A100, {:.0f} TFLOP/s and {:.0f} GB/s, which is
{:.0f} FLOPs a byte. A part has n/(2+p): with more than {} ranks for n = 2048 and {} for 4096 it
waits for memory. What it can reach at most:

)",
      peak / 1e12, bandwidth / 1e9, peak / bandwidth, most(2048), most(4096));
  print_table(rows);
  return {{"rows", rows},
          {"balance", peak / bandwidth},
          {"most_ranks", {{"2048", most(2048)}, {"4096", most(4096)}}}};
}

Tensor random_matrix(std::int64_t rows, std::int64_t columns, Device& device, const char* name) {
  Tensor matrix({rows, columns}, DType::F32, device);
  const Philox random(1, name);
  std::uint64_t i = 0;
  for (float& value : matrix.values<float>())
    value = static_cast<float>(random.below(i++, 2001)) / 1000 - 1;
  return matrix;
}

// Seconds of Y = X A, whose first element is looked at.
double product_seconds(const Tensor& y, const Tensor& x, const Tensor& a) {
  const Clock clock = Clock::wall();
  const double begin = clock.now();
  ops::matmul(y, x, a);
  const double seconds = clock.now() - begin;
  const std::int64_t K = x.shape()[1], columns = a.shape()[1];
  double sum = 0;
  for (std::int64_t k = 0; k < K; ++k)
    sum += static_cast<double>(x.values<float>()[static_cast<std::size_t>(k)]) *
           static_cast<double>(a.values<float>()[static_cast<std::size_t>(k * columns)]);
  if (std::abs(sum - static_cast<double>(y.values<float>()[0])) > 1e-2)
    fail(fmt::format("a product's first element is {}, expected {}", y.values<float>()[0], sum));
  return seconds;
}

Json of_this_processor() {
  constexpr std::int64_t n = 4096;
  constexpr int kRounds = 5;
  const int threads = available_cores();
  const double bandwidth = measure_read_bandwidth(threads);
  double peak = measure_peak_flops(DType::F32, threads);
  CpuDevice device;
  const Tensor x = random_matrix(n, n, device, "X");
  std::vector<std::pair<std::int64_t, double>> best;  // p, seconds
  for (std::int64_t p = 1; p <= n; p *= 2)
    best.emplace_back(p, std::numeric_limits<double>::infinity());
  for (int round = 0; round < kRounds; ++round)
    for (auto& [p, seconds] : best) {
      const Tensor a = random_matrix(n, n / p, device, "A"), y({n, n / p}, DType::F32, device);
      seconds = std::min(seconds, product_seconds(y, x, a));
    }
  peak = std::max(peak, measure_peak_flops(DType::F32, threads));
  Json rows = Json::array();
  for (const auto& [p, seconds] : best) {
    const PartCost part = cost_of_part({n, n, n, DType::F32}, p);
    const double expected = reachable(part, peak, bandwidth);
    rows.push_back({{"p", p},
                    {"columns", n / p},
                    {"FLOP/B", part.intensity()},
                    {"at most", expected / 1e9},
                    {"GFLOP/s", part.flops / seconds / 1e9},
                    {"of it", part.flops / seconds / expected},
                    {"ms", seconds * 1e3},
                    {"speedup", best[0].second / seconds}});
  }
  const std::int64_t most = most_ranks({n, n, n, DType::F32}, peak / bandwidth);
  fmt::print(
      R"(Measured on this processor: one rank's part of a product of {} x {} matrices in F32, {}
threads, the best of {} rounds. Peak {:.4g} GFLOP/s and {:.4g} GB/s, measured in this run: {:.3g}
FLOPs a byte, {} ranks.

)",
      n, n, threads, kRounds, peak / 1e9, bandwidth / 1e9, peak / bandwidth, most);
  print_table(rows);
  return {{"peak", peak}, {"bandwidth", bandwidth}, {"most_ranks", most}, {"rows", rows}};
}

// --- one sample on more GPUs -------------------------------------------------------------------

Json strong_scaling() {
  const Machine filled = find_machine("dgx-a100"), apart = one_rank_a_node(filled);
  const GptConfig config = gpt(26, 4096, 64, 2048);
  const BlockRange blocks{1, 25};  // without the first and the last: no embedding and no head
  Json rows = Json::array();
  for (const Machine* machine : {&filled, &apart}) {
    double alone = 0;
    for (int t = 1; t <= 64; t *= 2) {
      const StepFigures step = run_step(*machine, config, {.ranks = t, .blocks = blocks});
      const double seconds = step.forward_seconds + step.backward_seconds;
      if (t == 1) alone = seconds;
      rows.push_back({{"GPUs a node", machine->ranks_per_node},
                      {"t", t},
                      {"ms", 1e3 * seconds},
                      {"speedup", alone / seconds},
                      {"waiting %", 100 * step.waiting_seconds / seconds},
                      {"without it", alone / (seconds - step.waiting_seconds)}});
    }
  }
  fmt::print(
      R"(Forward and backward of one sample of {} tokens through {} blocks of {} columns and {}
heads, BF16, on t A100: nodes of 8, filled one after the other, and nodes of 1. Sums over ranks
go round one ring, which between two nodes has one card. Waiting is what no computing hides.
Without it the speedup is still not t: norms, residual stream and launches are not divided, and
small products run at a lower rate.

)",
      config.context, blocks.end - blocks.begin, config.width, config.heads);
  print_table(rows);
  print_assumed(filled);
  return rows;
}

// --- memory ------------------------------------------------------------------------------------

Json memory() {
  const GptConfig config = gpt(48, 6144, 64, 2048);
  const std::int64_t samples = 4;
  Json rows = Json::array();
  for (const int t : {1, 2, 4, 8}) {
    const StepFigures step =
        run_step(find_machine("dgx-a100"), config, {.ranks = t, .samples = samples});
    const auto live = [&](Purpose purpose) {
      return number(step.ledger[purpose].live_bytes) / 1e9;
    };
    const std::int64_t blocks = config.layers * block_parameters(config).on_each_of(t);
    const double scores = 5 * number(config.heads * config.context * config.context * samples) / t;
    const double paper = published_block_activations(config, samples, t);
    rows.push_back({{"t", t},
                    {"weights", live(Purpose::Parameters)},
                    {"gradients", live(Purpose::Gradients)},
                    {"optimizer", live(Purpose::Optimizer)},
                    {"1e6 in blocks", number(blocks) / 1e6},
                    {"others", number(step.parameters - blocks) / 1e6},
                    {"a block keeps", number(step.layer_bytes.at(4)) / 1e9},
                    {"formula", number(block_activations(config, samples).on_each_of(t)) / 1e9},
                    {"paper's", paper / 1e9},
                    {"no scores", (paper - scores) / 1e9}});
  }
  fmt::print(
      R"(GB of a rank, by its ledger: {} blocks of {} columns and {} heads, BF16, {} samples of {}
tokens; AdamW with a copy in F32. Elements in blocks by (12 h^2 + 7 h)/t + 6 h, and all others.
What a block keeps for backward, its formula
s b h (8 + 24/t) + s b (16 + 4 a/t), that of arXiv 2205.05198, s b h (10 + 24/t + 5 a s/(h t)), and
the same without scores, s b h (10 + 24/t): masks are drawn again here, 2 of the 10. t divides
matrices, biases of columns, queries, keys, values and the hidden layer; not norms, biases behind a
sum, positions, nor the residual stream and what norms make of it: 8 s b h on each rank.

)",
      config.layers, config.width, config.heads, samples, config.context);
  print_table(rows);
  return rows;
}

// --- Megatron-LM's first models ----------------------------------------------------------------

struct Published {
  double billions;
  std::int64_t layers, width, heads;
  int gpus;
  double value;
};

// Steps of 8 samples; the first row is what the others are related to.
enum class Scaling { Weak, Strong };
Json megatron(Scaling scaling, std::span<const Published> published) {
  const Machine machine = find_machine("dgx-2");
  Json rows = Json::array();
  double first_rate = 0, first_seconds = 0;
  for (const auto& [billions, layers, width, heads, gpus, value] : published) {
    const GptConfig config = gpt(layers, width, heads, 1024);
    const SplitStep each{.ranks = gpus, .samples = 8, .recompute = Recompute::parse("block")};
    const StepFigures step = run_step(machine, config, each);
    const double seconds = step.seconds(), rate = step_flops(config, each) / seconds / gpus;
    if (rows.empty()) first_rate = rate, first_seconds = seconds;
    const bool weak = scaling == Scaling::Weak;
    const double here = weak ? 100 * rate / first_rate : first_seconds / seconds;
    rows.push_back({{"billions", billions},
                    {"GPUs", gpus},
                    {"ms", 1e3 * seconds},
                    {"waiting", 1e3 * step.waiting_seconds},
                    {"update", 1e3 * step.update_seconds},
                    {"TFLOP/s", rate / 1e12},
                    {"peak GB", number(step.ledger.total.peak_bytes) / 1e9},
                    {weak ? "weak %" : "speedup", here},
                    {"published", value},
                    {"ratio", here / value}});
  }
  print_table(rows);
  return rows;
}

Json megatron_1() {
  fmt::print(
      R"(Megatron-LM's GPT-2 models on V100 of a DGX-2 (arXiv 1909.08053, table 1 and figure 5):
8 samples of 1024 tokens, 51200 rows, 96 columns a head, all blocks recomputed, AdamW, without
clipping. Weak scaling: FLOPs a second and GPU, what is recomputed counted, relative to one GPU.
That one had 39 TFLOP/s there, and 62.4, 1288 ms a step, in version 1.0
(nv-adlr.github.io/MegatronLMV1).

)");
  const Json weak = megatron(Scaling::Weak, std::vector<Published>{{1.2, 40, 1536, 16, 1, 100},
                                                                   {2.5, 54, 1920, 20, 2, 95},
                                                                   {4.2, 64, 2304, 24, 4, 82},
                                                                   {8.3, 72, 3072, 32, 8, 77}});
  fmt::print("The smallest on more GPUs, the same batch: speedup (the paper's appendix).\n\n");
  const Json strong =
      megatron(Scaling::Strong, std::vector<Published>{{1.2, 40, 1536, 16, 1, 1},
                                                       {1.2, 40, 1536, 16, 2, 1.64},
                                                       {1.2, 40, 1536, 16, 4, 2.34},
                                                       {1.2, 40, 1536, 16, 8, 2.98}});
  print_assumed(find_machine("dgx-2"));
  fmt::print(
      R"(Other than there: the core of attention is fused, and stores no scores; the sum of dx runs
beside the product of dW, where it costs the GPU nothing; links carry what their data sheet says;
nothing but operations and messages takes time; the paper's V100s are a DGX-2H's, with a higher
clock.

)");
  return {{"weak", weak}, {"strong", strong}};
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::measuring_program(
      argc, argv, "Where splitting a layer stops to pay, measured and in virtual time.",
      [](aisc::CommandLine&) {},
      [] {
        return nlohmann::ordered_json{{"a100", aisc::of_a100()},
                                      {"here", aisc::of_this_processor()},
                                      {"strong", aisc::strong_scaling()},
                                      {"memory", aisc::memory()},
                                      {"megatron", aisc::megatron_1()}};
      });
}
