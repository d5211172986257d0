// Where a pipeline pays, and what papers have printed of pipelines: against data parallelism on
// three networks, GPipe's Transformer, the zero-bubble paper's bubble rates, a stage of GPT-3.
// Seconds are a machine profile's or the paper's, bytes a device's without memory
// (docs/virtual_time.md).
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "05_pipeline/partition.h"
#include "05_pipeline/planner.h"
#include "05_pipeline/schedules.h"
#include "05_pipeline/simulate.h"
#include "common/comm/simulate.h"
#include "common/core/flags/program.h"
#include "common/model/emulated_device.h"
#include "common/nn/driver.h"
#include "common/nn/parameter_store.h"
#include "common/optim/optimizer.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

GptConfig gpt(std::int64_t layers, std::int64_t width, std::int64_t heads, std::int64_t context,
              std::int64_t vocabulary) {
  return {layers, heads, width, context, vocabulary, 128, 0, 0, DType::BF16};
}

// --- a stage -----------------------------------------------------------------------------------

struct Stage {
  double parameters = 0;
  ActionCosts costs{};
  double kept = 0;                             // bytes for backward, of a micro-batch
  Ledger ledger{};                             // with one micro-batch
  std::vector<std::int64_t> gradient_bytes{};  // by layer

  double bytes(Purpose purpose) const { return static_cast<double>(ledger[purpose].live_bytes); }
  double peak() const { return static_cast<double>(ledger.total.peak_bytes); }
};

// A micro-batch of so many samples on a stage of a GPT, and AdamW, on a machine with room for it.
Stage run_stage(Machine machine, const GptConfig& config, std::int64_t samples,
                BlockRange blocks = {}, const GptParts& parts = gpt2_parts()) {
  machine.capacity = 0;
  Stage stage;
  launch(on_machine(machine, 1, {.meta = true}), [&](const Rank& rank) {
    const Model model = make_gpt(rank, config, parts, blocks);
    ParameterStore store(rank.device, make_units(model),
                         {.value_dtype = config.dtype, .grad_dtype = config.dtype});
    AdamW adam(slices_of(store.parameters()), {});
    const Tensor ids({samples, config.context}, DType::I32, rank.device);  // (B, T)
    const Shape boundary{samples, config.context, config.width};           // (B, T, C)
    std::vector<Saved> saved(model.layers.size() + 1);
    for (const int micro_batch : {0, 1}) {  // the second adds to gradients, as all others do
      const Pass pass{.micro_batch = micro_batch, .last_micro_batch = micro_batch == 1};
      double begin = rank.clock.now();
      const auto lap = [&] { return rank.clock.now() - std::exchange(begin, rank.clock.now()); };
      Tensor x = blocks.begin == 0 ? ids.share() : Tensor(boundary, config.dtype, rank.device);
      x = forward_layers(model, std::move(x), saved, pass);
      if (model.loss) model.loss->forward(std::move(x), ids, saved.back(), {});
      x = {};
      stage.kept = static_cast<double>(bytes_of(saved));
      stage.costs.forward = lap();
      x = model.loss ? model.loss->backward(saved.back(), 1)
                     : Tensor(boundary, config.dtype, rank.device);
      backward_layers(model, std::move(x), saved, pass);
      stage.costs.backward = lap();
      adam.step({.learning_rate = 1e-4});
      stage.costs.update = lap();
    }
    stage.parameters = static_cast<double>(store.parameter_count());
    stage.ledger = rank.device.ledger();
    for (const auto& layer : model.layers) {
      std::int64_t& bytes = stage.gradient_bytes.emplace_back(0);
      for (const Parameter* p : layer->parameters()) bytes += p->grad().bytes();
    }
  });
  return stage;
}

GptParts recomputed() {  // blocks keep their input alone
  GptParts parts = gpt2_parts();
  parts.recompute_blocks = 1;
  return parts;
}

std::vector<Stage> run_stages(const Machine& machine, const GptConfig& config, std::int64_t samples,
                              const std::vector<BlockRange>& stages,
                              const GptParts& parts = gpt2_parts()) {
  std::vector<Stage> all;
  for (const BlockRange& blocks : stages)
    all.push_back(run_stage(machine, config, samples, blocks, parts));
  return all;
}

// As many blocks each, from block `first` on.
std::vector<BlockRange> even_stages(std::int64_t blocks, int stages, std::int64_t first = 0) {
  std::vector<BlockRange> all;
  for (int s = 0; s < stages; ++s)
    all.push_back({first + blocks * s / stages, first + blocks * (s + 1) / stages});
  return all;
}

std::vector<BlockRange> best_stages(const GptConfig& config, int stages,
                                    std::span<const LayerSeconds> layers) {
  return gpt_stages(config, cut(block_seconds(config, layers), stages));
}

Simulation simulate_stages(const Schedule& schedule, const std::vector<Stage>& stages,
                           const GptConfig& config, std::int64_t samples, const Link& link) {
  std::vector<ActionCosts> costs;
  for (const Stage& stage : stages) costs.push_back(stage.costs);
  const std::int64_t elements = samples * config.context * config.width;
  return simulate(schedule, costs, {link.latency_seconds, link.seconds_per_byte, 2 * elements});
}

// --- against data parallelism ------------------------------------------------------------------

constexpr int kGpus = 8;

// What a micro-batch of so many samples costs on a GPU, whole and by stages.
struct Profile {
  std::int64_t samples;
  std::vector<LayerSeconds> layers;
  Stage whole;
  std::vector<Stage> stages;
};

// Each layer's gradients are summed on a ring when the backward of the last micro-batch has them.
double data_parallel(const Profile& profile, const Network& network, std::int64_t micro_batches) {
  const ActionCosts& costs = profile.whole.costs;
  double now = static_cast<double>(micro_batches) * (costs.forward + costs.backward);
  for (const LayerSeconds& layer : profile.layers) now -= layer.backward;
  SimulationState ring(network, kGpus);
  for (std::size_t i = profile.layers.size(); i-- > 0;) {
    now += profile.layers[i].backward;
    for (double& seconds : ring.seconds) seconds = std::max(seconds, now);
    if (const std::int64_t bytes = profile.whole.gradient_bytes[i]; bytes > 0)
      simulate(ring_all_reduce, call_of(CommOp::AllReduce, kGpus, bytes), kGpus, network, {},
               &ring);
  }
  return std::ranges::max(ring.seconds) + costs.update;
}

// 1F1B; then first and last rank add up the gradients of the table that they share. Infinite where
// a rank has no room.
double pipeline(const Profile& profile, const Machine& machine, const GptConfig& config, int m) {
  const Network network = machine.network(kGpus);
  const Simulation run =
      simulate_stages(one_f_one_b(kGpus, m), profile.stages, config, profile.samples,
                      network.crosses_nodes(0, 1) ? network.card : network.link);
  for (std::size_t s = 0; s < profile.stages.size(); ++s)
    if (profile.stages[s].peak() + (run.ranks[s].most_in_flight - 1) * profile.stages[s].kept >
        machine.capacity)
      return std::numeric_limits<double>::infinity();
  const Collective tied = call_of(CommOp::AllReduce, 2, profile.stages[0].gradient_bytes[0]);
  return run.total_seconds + simulate(ring_all_reduce, tied, 2, network).seconds;
}

Json against_data_parallel() {
  const GptConfig config = gpt(22, 2304, 24, 1024, 50257);
  const Machine node = find_machine("dgx-a100");
  std::vector<Profile> profiles;
  for (const std::int64_t samples : {1, 2, 4, 8, 16}) {
    const auto layers = gpt_layer_seconds(node, config, samples, config.context);
    profiles.push_back({samples, layers, run_stage(node, config, samples),
                        run_stages(node, config, samples, best_stages(config, kGpus, layers))});
  }
  fmt::print(
      R"(A GPT of 22 blocks of 2304 columns, BF16, on 8 A100 of 80 GB ({:.3g} billion parameters):
seconds of a step of so many samples of 1024 tokens. Data parallelism sums each layer's gradients
on a ring while the backward of the last micro-batch runs. The pipeline is 1F1B, cut at blocks;
forward and backward messages do not hold each other up. Each takes the fastest micro-batch of 1
to 16 samples that fits. On InfiniBand and Ethernet each GPU has a card. 1F1B waits for slow
messages: 8 micro-batches are in flight, and the next begins when one has passed 14 boundaries.

)",
      profiles[0].whole.parameters / 1e9);
  Json all;
  for (const char* const name : {"NVLink", "InfiniBand", "Ethernet"}) {
    Machine machine = node;
    if (name != std::string("NVLink")) machine.ranks_per_node = machine.cards_per_node = 1;
    if (name == std::string("Ethernet")) machine.card_link = find_machine("k80").card_link;
    Json rows = Json::array(), crossover;
    for (std::int64_t batch = 8; batch <= 8192; batch *= 2) {
      std::pair<double, std::int64_t> data{1e9, 0}, piped{1e9, 0};  // seconds, micro-batches
      for (const Profile& p : profiles) {
        const std::int64_t m = batch / p.samples;
        if (m >= kGpus && p.whole.peak() <= machine.capacity)
          data = std::min(data, {data_parallel(p, machine.network(kGpus), m / kGpus), m / kGpus});
        if (m > 0) piped = std::min(piped, {pipeline(p, machine, config, static_cast<int>(m)), m});
      }
      const bool data_wins = data.first < piped.first;
      if (!data_wins || crossover.is_null()) crossover = data_wins ? Json(batch) : Json();
      rows.push_back({{"samples", batch},
                      {"data", data.first},
                      {"m_data", data.second},
                      {"pipeline", piped.first},
                      {"m_pipeline", piped.second},
                      {"faster", data_wins ? "data" : "pipeline"}});
    }
    const Link& link = machine.ranks_per_node > 1 ? machine.node_link : machine.card_link;
    fmt::print("{}, {:.4g} GB/s a GPU: {}\n\n", name, 1e-9 / link.seconds_per_byte,
               crossover.is_null()
                   ? "the pipeline is faster"
                   : "data parallelism is faster from " + crossover.dump() + " samples on");
    print_table(rows);
    all[name] = {{"rows", rows}, {"data_parallel_from", crossover}};
  }
  return all;
}

// --- published numbers -------------------------------------------------------------------------

// Seconds of a step of 32 samples of GPipe's Transformer-48; with two other blocks at its ends, to
// which embedding and softmax belong, that of its blocks alone.
double gpipe_seconds(int ranks, int micro_batches, std::int64_t others) {
  const Machine machine = find_machine("dgx-2");
  const GptConfig config = gpt(48 + others, 2048, 32, 1024, 32000);
  const std::int64_t samples = 32 / micro_batches;
  const auto layers = gpt_layer_seconds(machine, config, samples, config.context, recomputed());
  const auto stages = run_stages(
      machine, config, samples,
      others > 0 ? even_stages(48, ranks, 1) : best_stages(config, ranks, layers), recomputed());
  return simulate_stages(gpipe(ranks, micro_batches), stages, config, samples, machine.node_link)
      .total_seconds;
}

Json gpipe_scaling() {
  Json rows = Json::array();
  constexpr int m = 32;
  for (const auto& [k, paper] : {std::pair{2, 1.8}, {4, 3.4}, {8, 6.3}}) {
    const double blocks = gpipe_seconds(2, 1, 2) / gpipe_seconds(k, m, 2);
    rows.push_back({{"K", k},
                    {"paper", paper},
                    {"formula", static_cast<double>(k * m) / (m + k - 1)},
                    {"blocks", blocks},
                    {"whole", gpipe_seconds(2, 1, 0) / gpipe_seconds(k, m, 0)},
                    {"ratio", blocks / paper}});
  }
  fmt::print(
      R"(GPipe's Transformer-48 (arXiv 1811.06965, table 2): throughput with M = 32 micro-batches
against K = 2, M = 1, as there. A batch of 32 x 1024 tokens, all blocks recomputed, AdamW; V100s on
NVLink stand for its TPUs. The formula is K M/(M+K-1); "blocks" are the 48 alone, with their ratio
to the paper; "whole" has embedding and softmax, too, and is cut at blocks: stages are not even.

)");
  print_table(rows);
  return rows;
}

// (cost - m (TF + TB + TW)) / cost, where the cost is the longest any rank takes from the begin of
// its first action to the end of its last (arXiv 2401.10241, section 5.3).
double bubble_rate(const Schedule& schedule, const ActionCosts& costs, double comm_seconds) {
  const double v = schedule.chunks();
  const ActionCosts chunk{costs.forward / v, costs.backward / v, costs.weight_gradient / v};
  double cost = 0;
  for (const RankTimes& r : simulate(schedule, {chunk}, {.latency_seconds = comm_seconds}).ranks)
    cost = std::max(cost, r.actions.back().end_seconds - r.actions.front().begin_seconds);
  const double work = costs.forward + costs.backward + costs.weight_gradient;
  return (cost - schedule.micro_batches * work) / cost;
}

Json zero_bubble() {
  const struct {
    int m;
    ActionCosts ms;
    double comm_ms, paper[4];
  } published[] = {{24, {18.522, 18.086, 9.337}, 0.601, {0.2431, 0.1055, 0.1585, 0.1083}},
                   {32, {18.513, 18.086, 9.331}, 0.626, {0.1985, 0.0818, 0.1242, 0.0837}},
                   {64, {18.546, 18.097, 9.321}, 0.762, {0.1240, 0.0443, 0.0674, 0.0444}}};
  Json rows = Json::array();
  for (const auto& [m, ms, comm_ms, paper] : published) {
    const double* cell = paper;
    for (const Schedule& s :
         {one_f_one_b(kGpus, m), interleaved(kGpus, 3, m), zb_h1(kGpus, m), zb_h2(kGpus, m)}) {
      const double rate = bubble_rate(s, ms, comm_ms);
      rows.push_back({{"m", m},
                      {"schedule", s.name},
                      {"rate", rate},
                      {"paper", *cell},
                      {"ratio", rate / *cell}});
      ++cell;
    }
  }
  fmt::print(
      R"(Bubble rates of 1.5 billion parameters on 8 ranks (arXiv 2401.10241, table 5),
from that paper's profiled TF, TB, TW and T_comm (table 6): a message takes T_comm, and its rank
goes on meanwhile. Interleaved: each layer is a chunk, and a rank has 3 (22 layers: the two ends
have one less).

)");
  print_table(rows);
  return rows;
}

Json gpt3_stages() {
  constexpr int kStages = 12, kTensor = 8, kMicroBatches = 1536 / 4;
  const GptConfig config = gpt(96, 12288, 96, 2048, 51200);
  Machine node = find_machine("dgx-a100");
  for (auto& [type, rate] : node.flops) rate *= kTensor;
  for (double* each : {&node.vector_flops, &node.memory_bandwidth}) *each *= kTensor;
  node.card_link.seconds_per_byte /= kTensor;
  const auto blocks = even_stages(config.layers, kStages);
  const auto stages = run_stages(node, config, 1, blocks, recomputed());
  const Simulation run =
      simulate_stages(one_f_one_b(kStages, kMicroBatches), stages, config, 1, node.card_link);
  Json rows = Json::array();
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const Stage& stage = stages[s];
    const int in_flight = run.ranks[s].most_in_flight;
    const double states = stage.bytes(Purpose::Parameters) + stage.bytes(Purpose::Gradients) +
                          stage.bytes(Purpose::Optimizer);
    rows.push_back({{"stage", s},
                    {"billions", stage.parameters / 1e9},
                    {"weights", stage.bytes(Purpose::Parameters) / 1e9},
                    {"gradients", stage.bytes(Purpose::Gradients) / 1e9},
                    {"optimizer", stage.bytes(Purpose::Optimizer) / 1e9},
                    {"kept_all", run_stage(node, config, 1, blocks[s]).kept / 1e9},
                    {"kept", stage.kept / 1e9},
                    {"in_flight", in_flight},
                    {"a_gpu", (states / kTensor + in_flight * stage.kept) / 1e9},
                    {"forward_s", stage.costs.forward},
                    {"backward_s", stage.costs.backward}});
  }
  fmt::print(
      R"(GPT-3, 174.6 billion parameters (arXiv 2104.04473, table 2): model-parallel size 96,
here 12 stages of 8 blocks, each on the 8 A100 of a node; 384 micro-batches of 1 x 2048 tokens for
each of 4 replicas, whose sum of gradients is left out. GB of a stage. Tensor parallelism is of
another module: here 8 GPUs compute 8 times as fast and send each other nothing. It divides
products, their weights, gradients and states by 8, but not norms nor the residual stream: what
recomputed blocks keep, their inputs, is whole on each GPU. "kept_all" is without recomputation,
"a_gpu" an eighth of the states and what is kept in flight.

)");
  print_table(rows);
  // Equation (3) of the paper, which counts what is recomputed.
  const auto l = static_cast<double>(config.layers), h = static_cast<double>(config.width);
  const auto t = static_cast<double>(config.context), v = static_cast<double>(config.vocabulary);
  const double flops = 96 * kMicroBatches * t * l * h * h * (1 + t / (6 * h) + v / (16 * l * h));
  const double tflops = flops / run.total_seconds / kStages / kTensor / 1e12;
  fmt::print("A step: {:.4g} s, {:.3g} % bubble, {:.4g} TFLOP/s a GPU; published: 153.\n",
             run.total_seconds, 100 * bubble_of_total(run), tflops);
  return {{"rows", rows}, {"seconds", run.total_seconds}, {"tflops", tflops}};
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::measuring_program(
      argc, argv, "Where a pipeline pays, and published numbers, in virtual time.",
      [](aisc::CommandLine&) {},
      [] {
        return nlohmann::ordered_json{{"data_parallel", aisc::against_data_parallel()},
                                      {"gpipe", aisc::gpipe_scaling()},
                                      {"zero_bubble", aisc::zero_bubble()},
                                      {"gpt3", aisc::gpt3_stages()}};
      });
}
