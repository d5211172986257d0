// What this module is about, in numbers: who has which tokens and how much that is to compute, and
// what attention sends on the way. Counted by running, in virtual time (docs/virtual_time.md).
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "07_sequence_parallel/ring_attention.h"
#include "07_sequence_parallel/ulysses.h"
#include "common/core/flags/program.h"
#include "common/model/emulated_device.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

std::string runs_of(const TokenPart& part) {
  const std::int64_t first = std::min(part.count, part.runs.split), last = part.count - 1;
  std::string text = fmt::format("{}-{}", part.runs.position(0), part.runs.position(first - 1));
  if (first < part.count)
    text += fmt::format(" {}-{}", part.runs.position(first), part.runs.position(last));
  return text;
}

// 16 tokens on 4 ranks: the pairs of a query and a key that it sees.
Json tokens() {
  fmt::print("16 tokens on 4 ranks: pairs of a query and a key that it sees\n\n");
  Json rows = Json::array();
  for (int rank = 0; rank < 4; ++rank) {
    Json row{{"rank", rank}};
    for (const auto& [name, form] :
         {std::pair{"ring", ContextForm::Ring}, {"zigzag", ContextForm::Zigzag}}) {
      const TokenPart part = token_part(form, rank, 4, 16);
      std::int64_t pairs = 0;
      for (std::int64_t t = 0; t < part.count; ++t) pairs += part.runs.position(t) + 1;
      row[name] = runs_of(part);
      row[fmt::format("{} pairs", name)] = pairs;
    }
    rows.push_back(row);
  }
  print_table(rows);
  return rows;
}

struct Counted {
  double seconds = 0, sent = 0;  // of the slowest rank; MB of rank 0
};

// Forward and backward of one layer's attention: one sample, 32 heads of 128 columns, BF16.
Counted attention(const Machine& machine, ContextForm form, int ranks, std::int64_t T) {
  constexpr std::int64_t kHeads = 32, kWidth = 4096;
  Counted counted;
  launch(on_machine(machine, ranks, {.meta = true}), [&](const Rank& rank) {
    const TokenPart part = token_part(form, rank.world.rank(), ranks, T);
    std::unique_ptr<Layer> core;
    if (form == ContextForm::Ulysses)
      core = std::make_unique<Ulysses>(rank, rank.world, "attention", kHeads);
    else
      core = std::make_unique<RingAttention>(rank, rank.world, "attention", kHeads, form);
    const Pass pass{.tokens = part.runs, .sequence = T};
    Saved saved;
    rank.world.barrier();
    const double begin = rank.clock.now();
    Tensor out =
        core->forward(Tensor({1, part.count, 3 * kWidth}, DType::BF16, rank.device), saved, pass);
    core->backward(std::move(out), saved, pass);
    const auto sent = static_cast<double>(rank.world.stats().sent().wire_bytes);
    rank.world.barrier();
    if (rank.world.rank() == 0) counted = {rank.clock.now() - begin, sent / 1e6};
  });
  return counted;
}

Json forms() {
  fmt::print("\nAttention of one layer on A100 of one node, forward and backward\n\n");
  const Machine machine = find_machine("dgx-a100");
  Json rows = Json::array();
  for (const std::int64_t T : {2048, 32768, 131072})
    for (const int ranks : {2, 8}) {
      Json row{{"tokens", T}, {"ranks", ranks}};
      for (const auto& [name, form] : {std::pair{"ring", ContextForm::Ring},
                                       {"zigzag", ContextForm::Zigzag},
                                       {"ulysses", ContextForm::Ulysses}}) {
        const Counted counted = attention(machine, form, ranks, T);
        row[fmt::format("{} ms", name)] = 1e3 * counted.seconds;
        row[fmt::format("{} MB", name)] = counted.sent;
      }
      rows.push_back(row);
    }
  print_table(rows);
  return rows;
}

Json run() {
  Json json;
  json["tokens"] = tokens();
  json["forms"] = forms();
  return json;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::measuring_program(
      argc, argv, "Sequence parallelism in numbers, in virtual time.", [](aisc::CommandLine&) {},
      aisc::run);
}
