// Where sharding ends, and where it pays twice: steps of models of 7.5 billion to a trillion
// parameters on 8 to 1,024 GPUs, without numbers (docs/virtual_time.md). One rank runs for all.
#include <fmt/format.h>

#include <bit>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "04_sharding/sharded_units.h"
#include "common/core/flags/program.h"
#include "common/model/emulated_device.h"
#include "common/model/replicas.h"
#include "common/train/trainer.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

// --- collectives of few messages ---------------------------------------------------------------

// A ring of p ranks has p (p - 1) messages, each of which virtual time follows; these plans have
// p log2 p, and as many bytes. p is a power of two, more than 1. A block of b ranks are those whose
// numbers differ in their last log2 b bits alone; each rank swaps with the one of the other half.
int block_of(int rank, int b) { return rank / b * b; }

// Blocks double: 1, 2, 4 ... ranks. Steps: log2 p. Bytes sent per rank: S (p - 1)/p.
Plan doubling_all_gather(const Collective& c, int rank, int size) {
  const std::int64_t n = c.call.count;
  const auto block = [&](int of, int b) {
    return Piece{Piece::Where::Out, block_of(of, b) * n, b * n};
  };
  Plan plan{.name = "doubling all_gather"};
  plan.copy(block(rank, 1), {Piece::Where::In, 0, n});
  for (int b = 1; b < size; b *= 2) {
    plan.end_step();
    plan.send(rank ^ b, block(rank, b));  // comm: b S/p
    plan.recv(rank ^ b, block(rank ^ b, b));
  }
  plan.end_step();
  return plan;
}

// The way back: each rank sends the half of its block that it does not need, and adds its own other
// half to what comes. Steps and bytes as above; memory 3/4 S.
Plan halving_reduce_scatter(const Collective& c, int rank, int size) {
  const std::int64_t n = c.call.count;
  Plan plan{.name = "halving reduce_scatter", .scratch_count = 3 * n * size / 4};
  Piece sums{Piece::Where::In, 0, n * size};  // of the ranks from `first` on
  int first = 0;
  for (int b = size / 2; b > 0; b /= 2) {
    const auto half = [&](int of) {
      return Piece{sums.where, sums.begin + (block_of(of, b) - first) * n, b * n};
    };
    // What comes lies where nothing of use is: before or behind the sums so far.
    const bool before = sums.where == Piece::Where::In || sums.begin > 0;
    const Piece arrived{Piece::Where::Scratch, before ? 0 : n * size / 2, b * n};
    plan.send(rank ^ b, half(rank ^ b));  // comm: b S/p, partial sums
    plan.recv(rank ^ b, arrived);
    plan.reduce(arrived, half(rank));
    plan.end_step();
    sums = arrived, first = block_of(rank, b);
  }
  plan.copy({Piece::Where::Out, 0, n}, sums);
  plan.end_step();
  return plan;
}

PlanTable plans_for(int ranks) {
  PlanTable plans = default_plans();
  if (!std::has_single_bit(static_cast<unsigned>(ranks))) return plans;
  plans[CommOp::AllGather] = doubling_all_gather;
  plans[CommOp::ReduceScatter] = halving_reduce_scatter;
  plans[CommOp::AllReduce] = recursive_doubling_all_reduce;  // of loss and norm, 8 bytes
  return plans;
}

// --- a step ------------------------------------------------------------------------------------

TrainConfig training(const GptConfig& model, std::int64_t batch, std::int64_t micro_batches = 1) {
  return {.model = model,
          .recompute = Recompute::parse("block"),
          .gradient_dtype = DType::BF16,
          .batch = batch,
          .micro_batches = micro_batches};
}

double number(const Json& row, const char* name) { return row[name].get<double>(); }

// Of a GPU: a rank is one, or `gpus_a_rank` that divide its work and memory evenly. There is room
// for everything: the caller compares.
Json step_on(Machine machine, int ranks, const TrainConfig& config, int stage, int gpus_a_rank) {
  machine.capacity = 0;
  const Network network = machine.network(ranks);
  const std::vector<std::uint8_t> zeros(static_cast<std::size_t>(config.model.context) + 1);
  Json row;
  launch(on_machine(machine, 1, {.meta = true}), [&](const Rank& own) {
    const auto world = make_replicas(ranks, network, own, plans_for(ranks));
    const Rank rank{*world, own.device, own.clock, own.trace};
    Trainer trainer(rank, config, sharded({.stage = stage}));
    const BatchSampler data(zeros, config.model.context, 1);
    const double states = static_cast<double>(rank.device.ledger().total.live_bytes);
    rank.world.barrier();
    rank.device.reset_peaks();
    rank.trace.reset();
    const double begin = rank.clock.now();
    trainer.step(data);
    const double seconds = rank.clock.now() - begin, gpus = gpus_a_rank;
    const Ledger ledger = rank.device.ledger();
    const auto peak = [&](const Usage& usage) {
      return static_cast<double>(usage.peak_bytes) / gpus;
    };
    row = {{"gpus", ranks * gpus_a_rank},
           {"samples", config.batch / config.micro_batches / ranks},  // of a micro-batch
           {"states", states / gpus},
           {"activations", peak(ledger[Purpose::Activations])},
           {"peak", peak(ledger.total)},
           {"seconds", seconds},
           {"waiting", rank.trace.seconds_by_part()["communication"]},
           {"tokens",
            static_cast<double>(config.batch * config.model.context) / seconds / ranks / gpus},
           {"tflops", trainer.hardware_flops_per_step() / seconds / ranks / gpus / 1e12}};
  });
  return row;
}

// --- on a SuperPOD -----------------------------------------------------------------------------

// Steps in stage 3, a row for each number of GPUs, which doubles. batch_of(gpus) are the samples of
// a step. A step that needs more than `capacity` bytes is run again in twice as many micro-batches.
// Each is run with two links between nodes: a GPU's own card, and one as fast as all eight of a
// node.
Json on_superpod(const GptConfig& model, int least, int most, double capacity,
                 const std::function<std::int64_t(int gpus)>& batch_of) {
  const char* const links[] = {"25 GB/s", "200 GB/s"};
  fmt::print("{:>5}{:>13}{:>11}{:>13}{:>7}", "GPUs", "micro-batch", "states GB", "activations",
             "peak");
  for (const char* link : links)
    fmt::print(" | {:>8}{:>9}{:>9}{:>9}", link, "waiting", "tokens/s", "TFLOP/s");
  Json rows = Json::array();
  for (int gpus = least; gpus <= most; gpus *= 2)
    for (int i = 0; i < 2; ++i) {
      Machine machine = find_machine("superpod");
      if (i == 1) machine.card_link.seconds_per_byte /= machine.cards_per_node;
      Json row;
      for (std::int64_t parts = 1; row.is_null() || number(row, "peak") > capacity; parts *= 2)
        row = step_on(machine, gpus, training(model, batch_of(gpus), parts), 3, 1);
      row["links"] = links[i];
      if (i == 0)
        fmt::print("\n{:>5}{:>13}{:>11.2f}{:>13.2f}{:>7.1f}", gpus,
                   row["samples"].get<std::int64_t>(), number(row, "states") / 1e9,
                   number(row, "activations") / 1e9, number(row, "peak") / 1e9);
      fmt::print(" | {:>8.2f}{:>9.2f}{:>9.0f}{:>9.1f}", number(row, "seconds"),
                 number(row, "waiting"), number(row, "tokens"), number(row, "tflops"));
      rows.push_back(row);
    }
  fmt::print("\n\n");
  return rows;
}

// --- memory that becomes batch -----------------------------------------------------------------

// A DGX-2 as one rank: its GPUs divide all products (tensor parallelism). What they send each other
// is left out.
Json superlinear(const GptConfig& model) {
  Machine node = find_machine("dgx-2");
  const int gpus = std::exchange(node.ranks_per_node, 1);
  for (auto& [type, rate] : node.flops) rate *= gpus;
  for (double* each : {&node.vector_flops, &node.memory_bandwidth}) *each *= gpus;
  node.card_link.seconds_per_byte /= std::exchange(node.cards_per_node, 1);

  const char* const names[] = {"whole", "cut", "paper's"};
  fmt::print("{:>5}{:>11}", "GPUs", "states GB");
  for (const char* name : names)
    fmt::print(" | {:>7}{:>8}{:>9}{:>9}", name, "s/step", "waiting", "TFLOP/s");
  Json rows = Json::array();
  for (const auto& [nodes, papers] : {std::pair{4, 16}, {8, 48}, {16, 48}, {25, 64}}) {
    const auto run = [&, ranks = nodes](std::int64_t samples) {
      return step_on(node, ranks, training(model, samples * ranks), 2, gpus);
    };
    // The most samples with which a GPU has room for its part, and for all checkpoints of so many
    // bytes a sample.
    const auto most = [&](double checkpoints) {
      std::int64_t fits = 1, too_many = 1024;
      while (too_many - fits > 1) {
        const std::int64_t n = (fits + too_many) / 2;
        const double others = checkpoints * static_cast<double>(n) * (gpus - 1) / gpus;
        (number(run(n), "peak") + others <= node.capacity ? fits : too_many) = n;
      }
      return fits;
    };
    const auto checkpoints = static_cast<double>(2 * model.layers * model.context * model.width);
    const std::int64_t batches[] = {most(checkpoints), most(0), papers};
    for (int i = 0; i < 3; ++i) {
      Json row = run(batches[i]);
      row["which"] = names[i];
      if (i == 0) fmt::print("\n{:>5}{:>11.1f}", gpus * nodes, number(row, "states") / 1e9);
      fmt::print(" | {:>7}{:>8.2f}{:>9.2f}{:>9.1f}", batches[i], number(row, "seconds"),
                 number(row, "waiting"), number(row, "tflops"));
      rows.push_back(row);
    }
  }
  fmt::print("\n\n");
  return rows;
}

Json run() {
  const auto gpt = [](std::int64_t layers, std::int64_t width, std::int64_t heads,
                      std::int64_t context) {
    return GptConfig{.layers = layers,
                     .heads = heads,
                     .width = width,
                     .context = context,
                     .vocabulary = 51200,
                     .dtype = DType::BF16};
  };
  Json json;
  fmt::print(
      "GB, seconds of a step and of waiting in it, and what a GPU does in a second. Blocks are "
      "recomputed.\n"
      "Between nodes of 8 A100 a GPU receives 25 GB/s (its own card) or 200 (all eight).\n\n"
      "A batch of 1024 x 2048 tokens, 7.5 billion parameters, stage 3; the largest micro-batch "
      "that fits\n\n");
  json["fixed_batch"] = on_superpod(gpt(36, 4096, 32, 2048), 8, 1024,
                                    find_machine("superpod").capacity, [](int) { return 1024; });
  fmt::print(
      "ZeRO's 60 billion parameters, stage 2, on nodes of 16 V100 of 32 GB that divide each "
      "product: the\n"
      "largest batch of a node that fits, with activation checkpoints whole on each GPU, or cut "
      "over the\n"
      "node (P_a); and that of the paper\n\n");
  json["superlinear"] = superlinear(gpt(75, 8192, 32, 1024));
  fmt::print(
      "A trillion parameters, 2048 tokens a GPU, stage 3. 16 bytes a parameter are more than the "
      "80 GB of\n"
      "each of 128 GPUs: a published run on so few has stored less (states in BF16, or on the "
      "host). Here\n"
      "memory has no limit.\n\n");
  json["flat"] =
      on_superpod(gpt(128, 25600, 160, 2048), 128, 512, std::numeric_limits<double>::infinity(),
                  [](int gpus) { return gpus; });
  return json;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::measuring_program(
      argc, argv, "Where sharding ends, in virtual time.", [](aisc::CommandLine&) {}, aisc::run);
}
