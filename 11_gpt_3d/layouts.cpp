// Every form of parallelism beside the others: one GPT, one batch, eight ranks, in virtual time
// without numbers (docs/virtual_time.md). Bytes are those of rank 0's ledger and of what it sends.
#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "05_pipeline/pipelined.h"
#include "05_pipeline/simulate.h"
#include "11_gpt_3d/placement.h"
#include "11_gpt_3d/step_of.h"
#include "app/emulated_run.h"
#include "common/core/flags/program.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kRanks = 8;

struct Form {
  std::string name;
  int pp = 1, tp = 1, zero = 0;
  std::string schedule = "1f1b";
  int chunks = 1;
  bool sp = false;      // tensor ranks share the tokens between layers
  bool stored = false;  // scores
  bool again = false;   // cores run forward again
};

const std::vector<Form> kForms{
    {.name = "data"},
    {.name = "data, ZeRO 1", .zero = 1},
    {.name = "data, ZeRO 2", .zero = 2},
    {.name = "data, ZeRO 3", .zero = 3},
    {.name = "stages, GPipe", .pp = 8, .schedule = "gpipe"},
    {.name = "stages, 1F1B", .pp = 8},
    {.name = "stages, interleaved", .pp = 8, .schedule = "interleaved", .chunks = 3},
    {.name = "stages, ZB-H1", .pp = 8, .schedule = "zb-h1"},
    {.name = "parts of layers", .tp = 8},
    {.name = "the same, sp", .tp = 8, .sp = true},
    {.name = "the same, scores stored", .tp = 8, .sp = true, .stored = true},
    {.name = "the same, cores again", .tp = 8, .sp = true, .stored = true, .again = true},
    {.name = "data 4, parts 2", .tp = 2},
    {.name = "data 2, parts 4", .tp = 4},
    {.name = "data 4, stages 2", .pp = 2},
    {.name = "data 2, stages 4", .pp = 4},
    {.name = "stages 4, parts 2", .pp = 4, .tp = 2},
    {.name = "data 2, stages 2, parts 2", .pp = 2, .tp = 2},
    {.name = "the same, ZeRO 1", .pp = 2, .tp = 2, .zero = 1},
    {.name = "the same, ZeRO 3", .pp = 2, .tp = 2, .zero = 3}};

// 1.3 billion parameters; a step of 64 samples in 8 micro-batches.
Options options_of(const Form& form, int ranks) {
  Options o;
  o.ranks = ranks;
  o.train.model = {.layers = 24,
                   .heads = 16,
                   .width = 2048,
                   .context = 1024,
                   .vocabulary = 50257,
                   .dtype = DType::BF16};
  o.train.gradient_dtype = DType::BF16;
  o.train.batch = 64;
  o.train.micro_batches = 8;
  o.train.clip = 1;
  o.train.pp = form.pp;
  o.train.tp = form.tp;
  o.sp = form.sp;
  if (form.stored) o.attention = "stored";
  if (form.again) o.train.recompute = Recompute::parse("core");
  o.sharding.zero = form.zero;
  o.pipeline.schedule = form.schedule;
  o.pipeline.chunks = form.chunks;
  return o;
}

// Of all ranks' time, where forward, input and weight gradients take equally long.
double bubble_of(const Form& form) {
  if (form.pp == 1) return 0;
  const Schedule schedule =
      find_schedule({.schedule = form.schedule, .chunks = form.chunks}, form.pp, 8);
  return bubble_of_total(simulate(schedule, {{1, 1, 1}}));
}

Json measured(const Machine& machine, const Form& form, int ranks, double alone) {
  const Options options = options_of(form, ranks);
  const std::vector<std::uint8_t> zeros(4096);
  const EmulatedStep step = emulate({.config = options.train,
                                     .machine = machine,
                                     .ranks = ranks,
                                     .meta = true,
                                     .parts = step_of(options)},
                                    zeros);
  const auto peak = [&](Purpose purpose) { return step.ledger[purpose].peak_bytes; };
  return {{"form", form.name},
          {"dp", ranks / (form.pp * form.tp)},
          {"pp", form.pp},
          {"tp", form.tp},
          {"zero", form.zero},
          {"weights", peak(Purpose::Parameters)},
          {"gradients", peak(Purpose::Gradients)},
          {"optimizer", peak(Purpose::Optimizer)},
          {"activations", peak(Purpose::Activations)},
          {"all", step.ledger.total.peak_bytes},
          {"sent", step.sent_bytes},
          {"messages", step.messages},
          {"seconds", step.seconds},
          {"exposed", step.exposed_seconds},
          {"bubble", bubble_of(form)},
          {"speedup", alone > 0 ? alone / step.seconds : 1}};
}

void print(const Json& row) {
  fmt::print("{:<27}", row["form"].get<std::string>());
  for (const char* bytes : {"weights", "gradients", "optimizer", "activations", "all", "sent"})
    fmt::print("{:>10.2f}", row[bytes].get<double>() / 1e9);
  fmt::print("{:>10}", row["messages"].get<std::int64_t>());
  fmt::print("{:>10.3f}{:>10.3f}{:>8.1f}{:>9.2f}\n", row["seconds"].get<double>(),
             row["exposed"].get<double>(), 100 * row["bubble"].get<double>(),
             row["speedup"].get<double>());
}

// The same GPT on two nodes of eight, a mesh of tp 2, dp 2, pp 4 in each order of its directions.
Json placements(const Machine& machine) {
  Options options = options_of({.name = "", .pp = 4, .tp = 2}, 16);
  fmt::print(
      "\n16 ranks in nodes of {}: tp 2, dp 2, pp 4, in the order of ranks; GB of all ranks between "
      "nodes\n\n{:<27}{:>14}{:>10}{:>10}{:>9}\n",
      machine.ranks_per_node, "order", "between nodes", "a step", "exposed", "slower");
  Json rows = Json::array();
  for (const MeshOrder& order : all_orders()) {
    const std::vector<std::uint8_t> zeros(4096);
    const EmulatedStep step =
        emulate({.config = options.train,
                 .machine = machine,
                 .ranks = 16,
                 .meta = true,
                 .parts = step_of(options),
                 .place =
                     [&](Communicator& world) {
                       return placed(world, {.dp = 2, .pp = 4, .tp = 2}, order);
                     }},
                zeros);
    rows.push_back({{"order", to_string(order)},
                    {"between_nodes", step.between_nodes},
                    {"seconds", step.seconds},
                    {"exposed", step.exposed_seconds}});
    fmt::print("{:<27}{:>14.2f}{:>10.3f}{:>10.3f}{:>9.2f}\n", to_string(order),
               static_cast<double>(step.between_nodes) / 1e9, step.seconds, step.exposed_seconds,
               step.seconds / rows[0]["seconds"].get<double>());
  }
  return rows;
}

Json run(const std::string& name) {
  Machine machine = find_machine(name);
  machine.capacity = 0;  // what does not fit is in the table, too
  fmt::print(
      "A GPT of 24 blocks and 2048 columns, 64 samples of 1024 tokens in 8 micro-batches, BF16, on "
      "{}\nGB at most on rank 0, GB that it sends, seconds of a step; the bubble in % of all "
      "ranks' "
      "time\n\n{:<27}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>8}{:>9}\n",
      machine.name, "form", "weights", "gradients", "optimizer", "activ.", "all", "sent",
      "messages", "a step", "exposed", "bubble", "speed-up");
  Json rows = Json::array();
  const auto add = [&](const Form& form, int ranks, double alone) {
    rows.push_back(measured(machine, form, ranks, alone));
    print(rows.back());
  };
  add({.name = "one rank"}, 1, 0);
  const double alone = rows[0]["seconds"].get<double>();
  for (const Form& form : kForms) add(form, kRanks, alone);
  return {{"machine", machine.name}, {"rows", rows}, {"placements", placements(machine)}};
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  std::string machine = "dgx-a100";
  return aisc::measuring_program(
      argc, argv, "All forms of parallelism on eight ranks beside each other.",
      [&](aisc::CommandLine& line) { line.text("--machine", machine, "one of `./aisc machines`"); },
      [&] { return aisc::run(machine); });
}
