// What this module is about, in numbers: bytes are those of the ledger, seconds those of virtual
// time (docs/virtual_time.md), so that they are the same on every machine.
#include <fmt/format.h>

#include <array>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "04_sharding/owned_units.h"
#include "04_sharding/sharded_units.h"
#include "common/core/flags/program.h"
#include "common/model/emulated_device.h"
#include "common/model/replicas.h"
#include "common/nn/driver.h"
#include "common/train/timeline.h"
#include "common/train/trainer.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

// Adam's numbers of a parameter in mixed precision: an F32 copy and two moments, 4 bytes each.
constexpr double kOptimizerBytes = 12;

StepParts parts_of(int stage) { return stage == 0 ? StepParts{} : sharded({.stage = stage}); }

// Bytes a parameter of the model states, by the formulas of ZeRO (section 5, figure 1).
double formula_bytes(int stage, double ranks) {
  const double weights = stage == 3 ? 2 / ranks : 2, gradients = stage >= 2 ? 2 / ranks : 2;
  return weights + gradients + (stage >= 1 ? kOptimizerBytes / ranks : kOptimizerBytes);
}

GptConfig gpt2_124m() { return {.dtype = DType::BF16}; }

TrainConfig step_of(const GptConfig& model, std::int64_t batch) {
  TrainConfig config;
  config.model = model;
  config.gradient_dtype = DType::BF16;
  config.batch = batch;
  return config;
}

double live(const Rank& rank, Purpose purpose) {
  return static_cast<double>(rank.device.ledger()[purpose].live_bytes);
}

double peak(const Rank& rank, Purpose purpose) {
  return static_cast<double>(rank.device.ledger()[purpose].peak_bytes);
}

// What one of `ranks` ranks with so many parameters holds now.
Json held(const Rank& rank, int stage, int ranks, std::int64_t parameters) {
  return {{"stage", stage},
          {"ranks", ranks},
          {"parameters", static_cast<double>(parameters)},
          {"weights", live(rank, Purpose::Parameters)},
          {"gradients", live(rank, Purpose::Gradients)},
          {"optimizer", live(rank, Purpose::Optimizer)}};
}

double bytes_of(const Json& row) {
  return row["weights"].get<double>() + row["gradients"].get<double>() +
         row["optimizer"].get<double>();
}

// --- bytes and volumes of a step ---------------------------------------------------------------

// Of rank 0: bytes between two steps and at the worst moment of one, and what it sends in one.
Json counted_step(int stage, int ranks) {
  Json row;
  const Machine machine = find_machine("dgx-a100");
  const std::vector<std::uint8_t> zeros(2048);
  launch(on_machine(machine, ranks, {.meta = true}), [&](const Rank& rank) {
    Trainer trainer(rank, step_of(gpt2_124m(), ranks), parts_of(stage));
    const BatchSampler data(zeros, trainer.config().model.context, 1);
    trainer.step(data);
    rank.device.reset_peaks();
    const std::int64_t before = rank.world.stats().sent().wire_bytes;
    trainer.step(data);
    if (rank.world.rank() > 0) return;
    row = held(rank, stage, ranks, trainer.parameters().parameter_count());
    const double psi = row["parameters"];
    const double sent = static_cast<double>(rank.world.stats().sent().wire_bytes - before);
    const double of_a_ring = 2 * psi * (ranks - 1) / ranks;  // BF16
    row.update({{"weights_peak", peak(rank, Purpose::Parameters)},
                {"gradients_peak", peak(rank, Purpose::Gradients)},
                {"formula", formula_bytes(stage, ranks) * psi},
                {"volume", ranks == 1 ? 0 : sent / of_a_ring}});
  });
  return row;
}

Json bytes_and_volumes() {
  fmt::print(
      "gpt2-124m in BF16: MB on a rank between two steps, and what a step sends, in Psi (N-1)/N\n\n"
      "{:>5}{:>3}{:>10}{:>11}{:>11}{:>10}{:>12}{:>17}{:>10}\n",
      "stage", "N", "weights", "gradients", "optimizer", "all", "by formula", "weights at most",
      "sent");
  Json rows = Json::array();
  for (int stage = 0; stage <= 3; ++stage)
    for (const int ranks : {1, 2, 4, 8}) {
      const Json row = counted_step(stage, ranks);
      const auto mb = [&](const char* what) { return row[what].get<double>() / 1e6; };
      fmt::print("{:>5}{:>3}{:>10.1f}{:>11.1f}{:>11.1f}{:>10.1f}{:>12.1f}{:>17.1f}{:>10.4f}\n",
                 stage, ranks, mb("weights"), mb("gradients"), mb("optimizer"), bytes_of(row) / 1e6,
                 mb("formula"), mb("weights_peak"), row["volume"].get<double>());
      rows.push_back(row);
    }
  return rows;
}

// --- ZeRO's figure 1 and table 1 ---------------------------------------------------------------

// 7.50 billion parameters.
GptConfig zero_7b() {
  return {.layers = 36,
          .heads = 32,
          .width = 4096,
          .context = 2048,
          .vocabulary = 59008,
          .dtype = DType::BF16};
}

// Bytes on one of so many ranks before the first step: the store, the hook and the optimizer are
// made, and nothing is sent.
Json states(const Machine& machine, int stage, int ranks) {
  Json row;
  launch(on_machine(machine, 1, {.meta = true}), [&](const Rank& own) {
    const Network network = machine.network(ranks);
    const auto world = make_replicas(ranks, network, own);
    const Rank rank{*world, own.device, own.clock, own.trace};
    const Model model = make_gpt(rank, zero_7b(), gpt2_parts());
    ParameterStore store(rank.device, make_units(model),
                         {.value_dtype = DType::BF16,
                          .grad_dtype = DType::BF16,
                          .ranks = stage > 0 ? ranks : 1,
                          .values = stage < 3,
                          .gradients = stage < 2});
    const std::unique_ptr<Reducer> reducer =
        stage == 0 ? std::make_unique<SumAtTheEnd>(rank, store)
                   : sharded({.stage = stage}).reducer(rank, model, store);
    const AdamW adamw(reducer->slices(), {});
    row = held(rank, stage, ranks, store.parameter_count());
  });
  return row;
}

// The paper's cells, as printed: of stage 0 figure 1 (64 ranks), of the others table 1.
struct Published {
  int ranks;
  std::array<const char*, 4> gigabytes;  // by stage; "": not there
};
constexpr Published kPublished[] = {
    {1, {"", "120", "120", "120"}},      {4, {"", "52.5", "41.3", "30"}},
    {16, {"", "35.6", "21.6", "7.5"}},   {64, {"120", "31.4", "16.6", "1.88"}},
    {256, {"", "30.4", "15.4", "0.47"}}, {1024, {"", "30.1", "15.1", "0.12"}}};

Json zeros_figure_and_table() {
  Machine machine = find_machine("superpod");
  machine.capacity = 0;  // 120 GB are what it has no room for
  fmt::print(
      "\nZeRO, figure 1 and table 1: 7.5 billion parameters, GB of weights, gradients and "
      "optimizer on a rank\n(in brackets what the paper prints)\n\n"
      "{:>6}{:>18}{:>18}{:>18}{:>18}\n",
      "ranks", "stage 0", "stage 1", "stage 2", "stage 3");
  Json rows = Json::array();
  for (const Published& published : kPublished) {
    fmt::print("{:>6}", published.ranks);
    for (int stage = 0; stage <= 3; ++stage) {
      const Json row = states(machine, stage, published.ranks);
      const std::string cell = published.gigabytes[static_cast<std::size_t>(stage)];
      fmt::print("{:>9.2f}{:>9}", bytes_of(row) / 1e9,
                 cell.empty() ? "" : fmt::format("({})", cell));
      rows.push_back(row);
    }
    fmt::print("\n");
  }
  return rows;
}

// --- who does what when in stage 3 -------------------------------------------------------------

constexpr int kTimelineRanks = 8;

// Writes down when each layer computes, and how many bytes of weights there are from when on. Two
// of them stand around the hook that gathers: the outer one sees when it begins, the inner one that
// it is over.
class Diary final : public LayerHook {
 public:
  explicit Diary(const Rank& rank) : rank_(rank), outer_(*this) {}
  LayerHook& outer() { return outer_; }

  void before_forward(std::size_t, const Pass&) override { computes(); }
  void after_forward(std::size_t layer, const Pass&, Saved&) override { wrote("forward", layer); }
  void before_backward(std::size_t, const Pass&, Saved&) override { computes(); }
  void after_backward(std::size_t layer, const Pass&) override { wrote("backward", layer); }
  void weights_at(double seconds) {
    weights.push_back({seconds, live(rank_, Purpose::Parameters)});
  }

  std::vector<TraceEvent> layers;
  Json weights = Json::array();
  double computed = 0;

 private:
  struct Outer final : LayerHook {
    explicit Outer(Diary& inner) : diary(inner) {}
    void before_forward(std::size_t, const Pass&) override { diary.turned_ = diary.now(); }
    void before_backward(std::size_t, const Pass&, Saved&) override { diary.turned_ = diary.now(); }
    Diary& diary;
  };
  double now() const { return rank_.clock.now(); }
  void computes() {
    weights_at(turned_);
    begin_ = now();
  }
  void wrote(const char* what, std::size_t layer) {
    computed += now() - begin_;
    layers.push_back({fmt::format("{}", layer), what, begin_, now(), 0});
  }

  const Rank rank_;
  Outer outer_;
  double turned_ = 0, begin_ = 0;
};

// A step of a GPT of six blocks, a sample a rank, on one node.
Json step_in_shards(const ShardOptions& options) {
  Json result;
  const Machine machine = find_machine("dgx-a100");
  launch(on_machine(machine, kTimelineRanks, {.meta = true}), [&](const Rank& rank) {
    const GptConfig config{.layers = 6,
                           .heads = 16,
                           .width = 2048,
                           .context = 1024,
                           .vocabulary = 8192,
                           .dtype = DType::BF16};
    const Model model = make_gpt(rank, config, gpt2_parts());
    Sharded s = shard(rank, model, options.stage, options, 1, {DType::BF16, DType::BF16});
    AdamW adamw(s.units->slices(), {});
    Diary diary(rank);
    LayerHook* const hooks[] = {&diary.outer(), s.units.get(), &diary};
    const Shape shape{1, config.context};
    const Tensor tokens(shape, DType::I32, rank.device), targets(shape, DType::I32, rank.device);
    rank.world.barrier();
    rank.trace.record(true);
    rank.device.reset_peaks();
    const double begin = rank.clock.now();
    diary.weights_at(begin);
    s.units->begin();
    forward_backward(model, tokens, targets, {}, 1, hooks);
    s.units->finish();
    const double over = rank.clock.now();
    diary.weights_at(over);
    adamw.step({.learning_rate = 1e-3});
    const double updated = rank.clock.now();
    s.units->updated();
    if (rank.world.rank() > 0) return;
    TimelineRow rows[] = {
        {"layers", diary.layers}, {"gather weights", {}}, {"scatter gradients", {}}};
    rows[0].events.push_back({"update", "update", over, updated, 0});
    for (TraceEvent event : rank.trace.events()) {
      if (event.lane == 0) continue;
      event.part = "communication";
      const bool gathers = event.name.find("all_gather") != std::string::npos;
      rows[gathers ? 1 : 2].events.push_back(std::move(event));
    }
    result = {{"rows", timeline_json(rows)},
              {"weights", diary.weights},
              {"weights_peak", peak(rank, Purpose::Parameters)},
              {"begin", begin},
              {"backward_over", over},
              {"end", rank.clock.now()},
              {"waited", over - begin - diary.computed}};
  });
  return result;
}

Json who_does_what() {
  fmt::print(
      "\nA step of 6 blocks, one sample each, on 8 A100: what prefetch and reuse are worth\n\n"
      "{:<40}{:>12}{:>12}{:>18}\n",
      "", "a step", "waiting", "weights at most");
  Json all;
  const auto add = [&](const std::string& name, const ShardOptions& options) {
    const Json& run = all[name] = step_in_shards(options);
    fmt::print("{:<40}{:>9.2f} ms{:>9.2f} ms{:>15.1f} MB\n", name,
               1e3 * (run["end"].get<double>() - run["begin"].get<double>()),
               1e3 * run["waited"].get<double>(), run["weights_peak"].get<double>() / 1e6);
  };
  add("stage 3, no prefetch", {.gather = {.prefetch = 0}});
  add("stage 3, a layer ahead", {.gather = {.prefetch = 1}});
  add("stage 3, two layers ahead", {.gather = {.prefetch = 2}});
  add("stage 3, whole until backward", {.gather = {.prefetch = 1, .reuse = GatherOptions::kAll}});
  add("stage 2", {.stage = 2});
  return all;
}

// --- owners against slices ---------------------------------------------------------------------

double step_seconds(const Machine& machine, int ranks, const StepParts& parts) {
  const std::vector<std::uint8_t> zeros(2048);
  double seconds = 0;
  launch(on_machine(machine, ranks, {.meta = true}), [&](const Rank& rank) {
    Trainer trainer(rank, step_of(gpt2_124m(), 4 * ranks), parts);
    const BatchSampler data(zeros, trainer.config().model.context, 1);
    trainer.step(data);
    rank.world.barrier();
    const double begin = rank.clock.now();
    trainer.step(data);
    if (rank.world.rank() == 0) seconds = rank.clock.now() - begin;
  });
  return seconds;
}

Json owners_and_slices() {
  fmt::print(
      "\ngpt2-124m in stage 3, 4 samples a GPU: each layer in slices, or with an owner; seconds a "
      "step\n\n{:<34}{:>6}{:>12}{:>12}{:>22}\n",
      "links", "GPUs", "slices", "owners", "owners, all-reduce");
  Json rows = Json::array();
  const Machine fast = find_machine("dgx-a100");
  Machine slow = fast;
  slow.card_link.seconds_per_byte = 1 / 1.25e9;
  slow.ranks_per_node = slow.cards_per_node = 1;
  for (const auto& [name, machine] : {std::pair{"300 GB/s (one node of 8 A100)", fast},
                                      std::pair{"1.25 GB/s (a node for each GPU)", slow}})
    for (const int ranks : {2, 4, 8}) {
      const double slices = step_seconds(machine, ranks, sharded({.stage = 3}));
      const double owners = step_seconds(machine, ranks, owned());
      const double all = step_seconds(machine, ranks, owned({.sum = OwnerOptions::Sum::AllReduce}));
      fmt::print("{:<34}{:>6}{:>12.4f}{:>12.4f}{:>22.4f}\n", name, ranks, slices, owners, all);
      rows.push_back({{"links", name},
                      {"ranks", ranks},
                      {"slices", slices},
                      {"owners", owners},
                      {"owners_all_reduce", all}});
    }
  return rows;
}

Json run() {
  Json json;
  json["stages"] = bytes_and_volumes();
  json["zero"] = zeros_figure_and_table();
  json["timeline"] = who_does_what();
  json["owners"] = owners_and_slices();
  return json;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::measuring_program(
      argc, argv, "Sharding in numbers, in virtual time.", [](aisc::CommandLine&) {}, aisc::run);
}
