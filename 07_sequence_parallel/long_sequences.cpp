// Sequences that no rank holds: from which block on a ring hides its messages, ring or Ulysses on
// which links, who computes when, and a long context trained for real. Seconds are a machine
// profile's (docs/virtual_time.md), unless it says for real.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "06_tensor_parallel/split_step.h"
#include "07_sequence_parallel/context_parallel.h"
#include "07_sequence_parallel/more/hybrid.h"
#include "07_sequence_parallel/more/long_context.h"
#include "common/core/flags/program.h"
#include "common/core/range.h"
#include "common/model/emulated_device.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kHeads = 32, kWidth = 4096;

SharedCore ring_of(ContextForm form, int ranks, std::int64_t tokens) {
  return {.part = [=](int rank) { return token_part(form, rank, ranks, tokens); },
          .make =
              [=](const Rank& rank) {
                return std::make_unique<RingAttention>(rank, rank.world, "core", kHeads, form);
              }};
}
SharedCore ulysses_of(int ranks, std::int64_t tokens) {
  return {.part = [=](int rank) { return token_part(ContextForm::Ulysses, rank, ranks, tokens); },
          .make =
              [](const Rank& rank) {
                return std::make_unique<Ulysses>(rank, rank.world, "core", kHeads);
              }};
}
SharedCore hybrid_of(int ranks, int node, std::int64_t tokens) {
  constexpr ContextForm kForm = ContextForm::Zigzag;
  return {.part = [=](int rank) { return hybrid_part(kForm, rank, ranks, node, tokens); },
          .make =
              [=](const Rank& rank) {
                return std::make_unique<Hybrid>(rank, rank.world, "core", kHeads, node, kForm);
              }};
}

Json blocks() {
  struct {
    const char* name;
    double flops, bandwidth, block, sequence;  // published, in thousands
  } published[] = {{"A100 NVLink", 312e12, 300e9, 1.0, 6.2},
                   {"A100 IB", 312e12, 12.5e9, 24.5, 149.5},
                   {"TPU v3", 123e12, 112e9, 1.1, 6.6},
                   {"TPU v4", 275e12, 268e9, 1.0, 6.2},
                   {"TPU v5e", 196e12, 186e9, 1.1, 6.3}};
  constexpr int kRanks = 2;
  const auto zigzags = [](std::int64_t tokens) {
    return ring_of(ContextForm::Zigzag, kRanks, tokens);
  };
  Json rows = Json::array();
  for (const auto& machine : published) {
    const std::int64_t found =
        hidden_from(products_and_links(machine.flops, machine.bandwidth), kRanks, 64, 2, zigzags);
    rows.push_back({{"machine", machine.name},
                    {"TFLOP/s", machine.flops / 1e12},
                    {"GB/s", machine.bandwidth / 1e9},
                    {"formula", machine.flops / machine.bandwidth},
                    {"c", found},
                    {"p. c/1000", machine.block},
                    {"6 c", 6 * found},
                    {"p. s/1000", machine.sequence}});
  }
  Machine node = find_machine("dgx-a100");
  node.launch_seconds = 0;
  const Machine apart = one_rank_a_node(node);
  Json profiles;
  for (const Machine& machine : {node, apart})
    profiles.push_back(hidden_from(machine, kRanks, kWidth, 32, zigzags));
  fmt::print(
      R"(The fewest tokens a rank, c, with which a ring's forward shows no communication, found by
bisection on machines of products and links alone, beside FLOPs/bandwidth and what is published
(arXiv 2310.01889, table 2; "p.", in thousands; its sequences are 6 c).

)");
  print_table(rows);
  fmt::print(
      R"(On the profile dgx-a100, whose products are below their peak and whose merging goes through
memory, with launches that take no time: {} tokens a rank inside a node, {} with each rank in a node
of its own.

)",
      profiles[0].dump(), profiles[1].dump());
  return {{"rows", rows}, {"profiles", profiles}};
}

Json who_wins() {
  const Machine node = find_machine("dgx-a100"), apart = one_rank_a_node(node);
  struct {
    const char* name;
    const Machine& machine;
    int ranks, node;  // of the hybrid
  } links[] = {{"8 in a node", node, 8, 4},
               {"8 apart", apart, 8, 4},
               {"2 nodes of 8", node, 16, 8},
               {"4 nodes of 8", node, 32, 8},
               {"8 nodes of 8", node, 64, 8}};
  Json rows = Json::array();
  for (const auto& [name, machine, ranks, in_node] : links)
    for (const std::int64_t T : {4096, 16384, 65536, 262144}) {
      Json row{{"links", name}, {"tokens", T}};
      std::string best;
      double least = 0;
      const std::pair<const char*, SharedCore> cores[] = {
          {"zigzag", ring_of(ContextForm::Zigzag, ranks, T)},
          {"ulysses", ulysses_of(ranks, T)},
          {"hybrid", hybrid_of(ranks, in_node, T)}};
      for (const auto& [form, core] : cores) {
        if (form == std::string("ulysses") && ranks > kHeads) {
          row["ulysses ms"] = "-";
          continue;
        }
        const CoreFigures figures = run_core(machine, ranks, T, kWidth, core);
        const double ms = 1e3 * (figures.forward_seconds + figures.backward_seconds);
        row[fmt::format("{} ms", form)] = ms;
        if (best.empty() || ms < least) best = form, least = ms;
      }
      row["fastest"] = best;
      const CoreFigures alone = run_core(without_links(machine), ranks, T, kWidth,
                                         ring_of(ContextForm::Zigzag, ranks, T));
      row["no links"] = 1e3 * (alone.forward_seconds + alone.backward_seconds);
      rows.push_back(row);
    }
  fmt::print(
      R"(Attention of one layer, {} heads of 128 columns, one sample, BF16, A100, forward and backward:
a zigzag ring, Ulysses, and Ulysses in groups of 4 (of 8 ranks) or in nodes with a ring across. A
node has 8 network cards. "8 apart": each rank in a node of its own. Ulysses has no more ranks than
heads. The last column is the zigzag where messages take no time.

)",
      kHeads);
  print_table(rows);
  return rows;
}

// When each of 4 ranks computes, in a layout as tools/timelines.py draws it.
Json timeline(ContextForm form) {
  constexpr int kRanks = 4;
  constexpr std::int64_t kTokens = 16384;
  const Machine machine = find_machine("dgx-a100");
  std::vector<Json> rows(kRanks);
  double end = 0;
  launch(on_machine(machine, kRanks, {.meta = true}), [&](const Rank& rank) {
    const SharedCore core = ring_of(form, kRanks, kTokens);
    const TokenPart part = core.part(rank.world.rank());
    const auto layer = core.make(rank);
    const Pass pass{.tokens = part.runs, .sequence = kTokens};
    Json events = Json::array();
    const char* name = "forward";
    rank.device.listen([&](const OpCost& cost) {  // told behind it
      const double now = rank.clock.now(), begin = now - machine.seconds(cost);
      const bool goes_on = !events.empty() && events.back()[0] == name &&
                           begin - events.back()[3].get<double>() < 1e-9;
      if (goes_on)
        events.back()[3] = now;
      else
        events.push_back({name, cost.operation, begin, now});
    });
    Saved saved;
    Tensor x({1, part.count, 3 * kWidth}, DType::BF16, rank.device);
    x = layer->forward(std::move(x), saved, pass);
    rank.world.barrier();
    name = "backward";
    layer->backward(std::move(x), saved, pass);
    rank.device.listen(nullptr);
    rank.world.barrier();
    rows[index(rank.world.rank())] = {{"name", fmt::format("rank {}", rank.world.rank())},
                                      {"events", events}};
    if (rank.world.rank() == 0) end = rank.clock.now();
  });
  double busy = 0;
  for (const Json& row : rows)
    for (const Json& event : row["events"]) busy += event[3].get<double>() - event[2].get<double>();
  fmt::print("{}: {:.4g} ms, ranks compute {:.3g} % of it\n",
             form == ContextForm::Ring ? "ring" : "zigzag", 1e3 * end, 100 * busy / kRanks / end);
  return {{"rows", rows}, {"seconds", end}, {"busy", busy / kRanks / end}};
}

Json timelines() {
  fmt::print("The same layer, 4 ranks of a node, 16384 tokens, forward and backward:\n\n");
  const Json ring = timeline(ContextForm::Ring), zigzag = timeline(ContextForm::Zigzag);
  fmt::print("\n");
  return {{"ring", ring}, {"zigzag", zigzag}};
}

Json long_training() {
  constexpr std::int64_t kTokens = 32768;
  Json rows = Json::array();
  for (const int cp : {1, 2, 4}) {
    const LongRun run = train_long(kTokens, 16, cp, 2, context_parallel(ContextForm::Zigzag));
    rows.push_back({{"cp", cp},
                    {"loss", run.first_loss},
                    {"behind it", run.last_loss},
                    {"activations", static_cast<double>(run.activation_bytes) / 1e6},
                    {"all MB", static_cast<double>(run.all_bytes) / 1e6},
                    {"s a step", run.seconds / 2}});
  }
  fmt::print(
      R"(For real: two steps of a block of 16 columns and 2 heads with a context of {} tokens, F32, in
zigzags of cp ranks that are threads; MB of the rank that holds most.

)",
      kTokens);
  print_table(rows);
  return rows;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::measuring_program(
      argc, argv, "Sequences that no rank holds, in virtual time and for real.",
      [](aisc::CommandLine&) {},
      [] {
        return nlohmann::ordered_json{{"blocks", aisc::blocks()},
                                      {"who_wins", aisc::who_wins()},
                                      {"timelines", aisc::timelines()},
                                      {"long", aisc::long_training()}};
      });
}
