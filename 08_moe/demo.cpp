// What this module is about, in numbers: where a router sends tokens and who is left out, what
// ranks exchange for it, and in virtual time (docs/virtual_time.md) what that costs a rank of many.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "08_moe/capacity.h"
#include "08_moe/dispatch.h"
#include "08_moe/exchange.h"
#include "08_moe/expert_parallel.h"
#include "08_moe/host_ids.h"
#include "08_moe/router.h"
#include "common/core/flags/program.h"
#include "common/core/rng.h"
#include "common/model/emulated_device.h"
#include "common/nn/driver.h"
#include "common/nn/parameter_store.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

// What a router says of tokens: normal numbers, and in favour of some experts what `liking` says.
Tensor drawn_logits(Device& device, std::int64_t samples, std::int64_t tokens, double spread,
                    const std::vector<double>& liking) {
  const std::int64_t E = std::ssize(liking);
  Tensor logits({samples, tokens, E}, DType::F32, device);
  const Philox random(812, "tokens");
  for (std::int64_t i = 0; i < logits.count(); ++i)
    logits.data<float>()[i] = static_cast<float>(
        spread * random.normal(static_cast<std::uint64_t>(i)) + liking[index(i % E)]);
  return logits;
}

// Which choices of each sample its experts have room for.
std::vector<std::uint8_t> kept_of(const std::vector<std::int32_t>& experts, std::int64_t samples,
                                  std::int64_t expert_count, double factor) {
  std::vector<std::uint8_t> kept;
  const std::int64_t T = std::ssize(experts) / samples;
  for (std::int64_t b = 0; b < samples; ++b) {
    const auto of_sample =
        within_capacity(std::span(experts).subspan(index(b * T), index(T)), 1, expert_count,
                        expert_capacity(factor, T, 1, expert_count));
    kept.insert(kept.end(), of_sample.begin(), of_sample.end());
  }
  return kept;
}

// ---- 16 tokens ----------------------------------------------------------------------------------

constexpr std::int64_t kSamples = 2, kTokens = 8, kExperts = 4;

struct Routed {
  std::vector<std::int32_t> experts;
  std::vector<float> gates;
  std::vector<std::uint8_t> kept;
};

Routed routed_tokens() {
  CpuDevice device;
  Saved saved;
  const Choices choices = make_switch_router()->choose(
      drawn_logits(device, kSamples, kTokens, 1.2, {0.2, 0.7, 0, -0.1}), saved, {});
  Routed routed{ids_of(choices.experts), {}, {}};
  const auto gates = choices.gates.values<float>();
  routed.gates.assign(gates.begin(), gates.end());
  routed.kept = kept_of(routed.experts, kSamples, kExperts, 1);
  return routed;
}

std::vector<int> whole_numbers(const Tensor& x) {
  const auto numbers = x.values<float>();
  return {numbers.begin(), numbers.end()};
}

// Tokens on their way through ranks that have equally many of them and of the experts. What travels
// is the token's number; expert e answers 10 (e + 1).
Json exchange(const Routed& routed, int ranks) {
  Json all(std::vector<Json>(static_cast<std::size_t>(ranks)));
  launch({.ranks = ranks}, [&](const Rank& rank) {
    Communicator& group = rank.world;
    const Range own = share_of(kSamples * kTokens, group.rank(), ranks);
    const auto n = index(own.count());
    const Tensor x({own.count(), 1}, DType::F32, rank.device);
    const Tensor gates({own.count(), 1}, DType::F32, rank.device);
    for (std::size_t i = 0; i < n; ++i) {
      x.data<float>()[i] = static_cast<float>(own.begin) + static_cast<float>(i);
      gates.data<float>()[i] = routed.gates[index(own.begin) + i];
    }
    const Dispatch plan =
        dispatch_of(rank.device, std::span(routed.experts).subspan(index(own.begin), n),
                    std::span(routed.kept).subspan(index(own.begin), n), 1, kExperts);
    const auto way = expert_ranks(group);
    const Route route = route_of(*way, plan.counts);
    const Tensor sorted = dispatched(x, plan);
    Travelling there = to_experts(*way, sorted, route);
    there.work.wait();
    const std::vector<int> arrived = whole_numbers(there.rows);
    Tensor answers = by_expert(std::move(there.rows), route);
    Json at_experts = Json::object();
    const std::int64_t here = kExperts / ranks, first = group.rank() * here;
    std::int64_t row = 0;
    for (std::int64_t e = 0; e < here; ++e) {
      Json& of_expert = at_experts[std::to_string(first + e)] = Json::array();
      for (std::int64_t i = 0; i < route.counts[index(e)]; ++i, ++row) {
        of_expert.push_back(static_cast<int>(answers.data<float>()[row]));
        answers.data<float>()[row] = static_cast<float>(10 * (first + e + 1));
      }
    }
    Travelling back = to_tokens(*way, by_rank(std::move(answers), route), route);
    back.work.wait();
    const Tensor y = combined(back.rows, gates, plan, own.count());
    const auto ys = y.values<float>();
    all[index(group.rank())] = {{"rank", group.rank()},
                                {"tokens", whole_numbers(x)},
                                {"sorted", whole_numbers(sorted)},
                                {"sends", route.sent},
                                {"receives", route.received},
                                {"arrived", arrived},
                                {"at experts", at_experts},
                                {"y", std::vector<float>(ys.begin(), ys.end())}};
  });
  return all;
}

std::string spaced(const Json& numbers) {
  return fmt::format("{}", fmt::join(numbers.get<std::vector<int>>(), " "));
}

Json tokens() {
  fmt::print(
      "16 tokens of 2 samples, 4 experts, capacity 1.0: each takes 2 tokens of a sample. Expert e "
      "answers 10 (e + 1)\n\n");
  const Routed routed = routed_tokens();
  Json json{{"two_ranks", exchange(routed, 2)}, {"four_ranks", exchange(routed, 4)}};
  Json rows = Json::array();
  for (std::size_t t = 0; t < routed.experts.size(); ++t)
    rows.push_back(
        {{"token", t},
         {"sample", t / kTokens},
         {"expert", routed.experts[t]},
         {"gate", std::round(1e3 * double{routed.gates[t]}) / 1e3},
         {"is", routed.kept[t] ? "kept" : "dropped"},
         {"y",
          std::round(1e2 * json["two_ranks"][t / kTokens]["y"][t % kTokens].get<double>()) / 1e2}});
  print_table(rows);
  for (const char* ranks : {"two_ranks", "four_ranks"}) {
    fmt::print("\nOn {} ranks: tokens for each rank, and from each\n\n", json[ranks].size());
    Json table = Json::array();
    for (const Json& row : json[ranks]) {
      std::string at;  // the tokens of each of its experts
      for (const auto& tokens : row["at experts"].items())
        at += fmt::format("  {}: {}", tokens.key(), spaced(tokens.value()));
      table.push_back({{"rank", row["rank"]},
                       {"sends", spaced(row["sends"])},
                       {"receives", spaced(row["receives"])},
                       {"experts and their tokens", at}});
    }
    print_table(table);
  }
  json["routed"] = rows;
  return json;
}

// ---- load ---------------------------------------------------------------------------------------

// 4096 tokens of four samples that choose among 8 experts: of a router that likes some better, and
// of one that does not.
Json load() {
  constexpr std::int64_t kOfSample = 1024, kAll = 8;
  fmt::print("\n4 samples of 1024 tokens, 8 experts: tokens that an expert takes, by capacity\n\n");
  const std::vector<std::vector<double>> likings{{1.1, 0.8, 0.5, 0.2, -0.1, -0.4, -0.7, -1},
                                                 std::vector<double>(kAll)};
  const std::vector<double> factors{0, 1, 1.25, 2};
  Json json = Json::array(), table = Json::array();
  for (std::size_t which = 0; which < likings.size(); ++which) {
    CpuDevice device;
    Saved saved;
    const Choices choices = make_switch_router()->choose(
        drawn_logits(device, 4, kOfSample, 1, likings[which]), saved, {});
    const std::vector<std::int32_t> experts = ids_of(choices.experts);
    for (const double factor : factors) {
      const std::vector<std::uint8_t> kept = kept_of(experts, 4, kAll, factor);
      std::vector<int> taken(kAll);
      for (std::size_t i = 0; i < experts.size(); ++i)
        taken[index(experts[i])] += static_cast<int>(kept[i]);
      const auto dropped = static_cast<double>(std::ranges::count(kept, 0));
      json.push_back({{"router", which == 0 ? "uneven" : "even"},
                      {"capacity", factor},
                      {"room", 4 * expert_capacity(factor, kOfSample, 1, kAll)},
                      {"taken", taken},
                      {"dropped", dropped / static_cast<double>(experts.size())}});
      Json row{{"router", json.back()["router"]},
               {"capacity", factor == 0 ? Json("no limit") : Json(factor)}};
      for (std::size_t e = 0; e < taken.size(); ++e) row[fmt::format("{}", e)] = taken[e];
      row["dropped %"] = 100 * json.back()["dropped"].get<double>();
      table.push_back(row);
    }
  }
  print_table(table);
  return json;
}

// ---- in virtual time ----------------------------------------------------------------------------

struct Counted {
  double seconds = 0, exposed = 0;  // of rank 0: waiting for rows
  double sent = 0, between = 0;     // bytes to other ranks, and of these to other nodes
};
struct Layout {
  int ep;
  std::string router = "switch";
  bool shared = false;
  int ranks_per_node = 0;  // given: rows take two hops
};

// Two blocks, of which the second has 32 experts, forward and backward of a sample on each of `ep`
// ranks that share them.
Counted two_blocks(const Machine& machine, const Layout& layout) {
  const GptConfig config{
      .layers = 2,
      .heads = 32,
      .width = 4096,
      .context = 2048,
      .dtype = DType::BF16,
      .experts = {.count = 32, .router = layout.router, .capacity = 0, .shared = layout.shared}};
  Counted counted;
  launch(on_machine(machine, layout.ep, {.meta = true}), [&](const Rank& rank) {
    Mesh mesh(rank.world, {.dp = layout.ep, .ep = layout.ep});
    mesh.experts().use_plans(default_plans());
    const Model model =
        make_gpt(rank, config, expert_parts(gpt2_parts(), &mesh, {}, layout.ranks_per_node));
    std::vector<std::unique_ptr<ParameterStore>> stores;
    for (const Sync sync : {Sync::Data, Sync::ExpertData})
      stores.push_back(std::make_unique<ParameterStore>(
          rank.device, make_units(model, sync),
          ParameterStore::Options{.value_dtype = DType::BF16, .grad_dtype = DType::BF16}));
    constexpr LayerRange kBlocks{3, 5};  // behind embedding, positions and dropout
    std::vector<Saved> saved(kBlocks.count());
    rank.world.barrier();
    rank.trace.reset();
    const double begin = rank.clock.now();
    Tensor y = forward_layers(model, kBlocks,
                              Tensor({1, config.context, config.width}, DType::BF16, rank.device),
                              saved, {});
    backward_layers(model, kBlocks, std::move(y), saved, {});
    const double end = rank.clock.now();
    const CommStats::Peer sent = mesh.experts().stats().sent();
    if (rank.world.rank() == 0)
      counted = {end - begin, rank.trace.seconds_by_part()["communication"],
                 static_cast<double>(sent.wire_bytes), static_cast<double>(sent.between_nodes)};
  });
  return counted;
}

Json steps() {
  fmt::print(
      "\nTwo blocks of 4096 columns, one with 32 experts, a sample of 2048 tokens a rank, forward "
      "and backward on A100,\n8 in a node: MB that a rank sends and ms that it waits for rows; "
      "with "
      "an expert that all tokens pass; in two hops\n\n");
  const Machine machine = find_machine("dgx-a100");
  Json rows = Json::array();
  for (const char* router : {"switch", "top2"})
    for (const int ep : {1, 2, 4, 8, 16, 32}) {
      const Counted plain = two_blocks(machine, {.ep = ep, .router = router});
      const Counted shared = two_blocks(machine, {.ep = ep, .router = router, .shared = true});
      Json row{{"router", router},
               {"ep", ep},
               {"MB", plain.sent / 1e6},
               {"to nodes", plain.between / 1e6},
               {"ms", 1e3 * plain.seconds},
               {"waits", 1e3 * plain.exposed},
               {"%", 100 * plain.exposed / plain.seconds},
               {"shared ms", 1e3 * shared.seconds},
               {"shared waits", 1e3 * shared.exposed},
               {"shared %", 100 * shared.exposed / shared.seconds},
               {"hops ms", "-"}};
      if (ep > machine.ranks_per_node)
        row["hops ms"] =
            1e3 * two_blocks(machine,
                             {.ep = ep, .router = router, .ranks_per_node = machine.ranks_per_node})
                      .seconds;
      rows.push_back(row);
    }
  print_table(rows);
  return rows;
}

Json run() {
  Json json;
  json["tokens"] = tokens();
  json["load"] = load();
  json["steps"] = steps();
  return json;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::measuring_program(
      argc, argv, "Experts in numbers: tokens by hand, load, and exchanges in virtual time.",
      [](aisc::CommandLine&) {}, aisc::run);
}
