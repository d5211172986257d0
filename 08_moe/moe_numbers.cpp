// Numbers of mixtures of experts that need no training run of days: the mixture of 1991, what dice
// drop, weights, bytes and FLOPs as experts grow, and 16 cores in five ways. Bytes and FLOPs are a
// device's without memory (docs/virtual_time.md).
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "08_moe/expert_parallel.h"
#include "08_moe/more/core_grids.h"
#include "08_moe/more/growing_experts.h"
#include "08_moe/more/local_experts.h"
#include "08_moe/more/uniform_drops.h"
#include "08_moe/more/upcycle.h"
#include "common/comm/launch.h"
#include "common/core/flags/program.h"
#include "common/train/trainer.h"

namespace aisc {
namespace {

using Json = nlohmann::ordered_json;

Json mixture() {
  Json rows = Json::array();
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {
    const Points points = four_quadrants(200, seed);
    const auto trained = [&](MixtureLoss loss, double rate) {
      LocalExperts experts(4, points.inputs, seed);
      experts.train(points, loss, 600, rate);
      return purity(experts, points);
    };
    rows.push_back({{"seed", seed},
                    {"competitive", trained(MixtureLoss::Competitive, 2)},
                    {"cooperative", trained(MixtureLoss::Cooperative, 0.2)}});
  }
  fmt::print(
      "Four linear experts under a linear gate, four pieces of the plane: the share of 200 points "
      "whose\nlargest gate is that of their piece's own expert, by the loss that both learn "
      "from.\n\n");
  print_table(rows);
  return rows;
}

Json dropped() {
  constexpr std::int64_t kExperts = 64, kTokens = 1 << 22;
  Json rows = Json::array();
  for (const std::int64_t C : {8, 32, 64, 128, 256})
    rows.push_back(
        {{"mean load", C},
         {"counted %", 100 * counted_dropped_share(C, kExperts, kTokens / (kExperts * C), 1)},
         {"64 experts %", 100 * uniform_dropped_share(C, kExperts)},
         {"formula %", 100 * uniform_dropped_share(C)}});
  fmt::print(
      "\nTokens that find no room where {} experts are chosen by dice, capacity factor 1: {}\n"
      "tokens counted, exactly, and e^-C C^C / C!.\n\n",
      kExperts, kTokens);
  print_table(rows);
  return rows;
}

Json weights() {
  Json rows = Json::array();
  for (const GshardModel& model : gshard_models()) {
    const ExpertWeights found = expert_weights(model);
    const auto all = static_cast<double>(found.all);
    rows.push_back({{"model", model.name},
                    {"experts' weights", all / 1e9},
                    {"published", model.weights / 1e9},
                    {"off %", 100 * (all / model.weights - 1)},
                    {"of a core", static_cast<double>(found.of_a_core) / 1e9},
                    {"p. BLEU", model.bleu}});
  }
  fmt::print("\nGShard's six models, billions of weights.\n\n");
  print_table(rows);
  return rows;
}

Json bytes() {
  Json rows = Json::array();
  const auto mb = [](std::int64_t n) { return static_cast<double>(n) / 1e6; };
  for (int ranks = 1; ranks <= 8; ranks *= 2) {
    const RankBytes shared = bytes_of_a_rank(ranks, ranks, 2 * ranks);
    const RankBytes alone = bytes_of_a_rank(ranks, 1, 2 * ranks);
    rows.push_back({{"ranks", ranks},
                    {"experts", 2 * ranks},
                    {"weights", mb(shared.weights)},
                    {"gradients", mb(shared.gradients)},
                    {"optimizer", mb(shared.optimizer)},
                    {"peak", mb(shared.peak)},
                    {"weights, ep 1", mb(alone.weights)},
                    {"peak, ep 1", mb(alone.peak)}});
  }
  fmt::print(
      "\nMB of a rank that has two experts of each block with experts, and (ep 1) of one that has "
      "all:\n4 blocks of 256 columns, 2 samples of 128 tokens a rank, F32, AdamW.\n\n");
  print_table(rows);
  return rows;
}

Json flops() {
  constexpr std::int64_t kWidth = 1024;
  Json rows = Json::array();
  for (const char* router : {"switch", "top2"})
    for (std::int64_t E = 2; E <= 16; E *= 2) {
      const TokenFlops found = flops_of_a_token(router, E, kWidth);
      const double of_router = static_cast<double>(6 * kWidth * E);
      rows.push_back({{"router", router},
                      {"experts", E},
                      {"of experts", found.products - of_router},
                      {"of the router", of_router},
                      {"no products", found.others}});
    }
  fmt::print("\nFLOPs of a token, forward and backward, of a layer of {} columns.\n\n", kWidth);
  print_table(rows);
  return rows;
}

Json grids() {
  Json ways = Json::array();
  fmt::print("\n16 cores in five ways: which part of the weights, experts and data each has.\n");
  for (const WayToDivide& way : five_ways()) {
    fmt::print("\n{}: dp {}, tp {}, ep {}\n{}", way.name, way.mesh.dp, way.mesh.tp, way.mesh.ep,
               core_grids(way));
    Json cores = Json::array();
    for (int core = 0; core < way.mesh.ranks(); ++core) {
      const CoreParts parts = parts_of_core(core, way.mesh);
      cores.push_back({{"weights", parts.weights}, {"data", parts.data}});
      if (way.experts) cores.back()["experts"] = parts.experts;
    }
    ways.push_back({{"way", way.name}, {"cores", cores}});
  }
  return ways;
}

// A text in which each of 64 words is followed by one of four: no model's loss is below ln 4.
std::vector<std::uint8_t> chain(std::int64_t tokens) {
  const Philox random(1, "text"), successors(1, "successors");
  std::vector<std::uint8_t> text{0};
  for (std::uint64_t i = 1; i < static_cast<std::uint64_t>(tokens); ++i)
    text.push_back(static_cast<std::uint8_t>(
        successors.below(4 * std::uint64_t{text.back()} + random.below(i, 4), 64)));
  return text;
}

Json upcycled() {
  constexpr int kSteps = 200;
  const std::vector<std::uint8_t> text = chain(1 << 14);
  TrainConfig config{.model = {.layers = 2,
                               .heads = 2,
                               .width = 32,
                               .context = 32,
                               .vocabulary = 64,
                               .vocabulary_multiple = 64},
                     .batch = 8,
                     .steps = kSteps,
                     .learning_rate = 1e-2,
                     .warmup_steps = 10};
  Json rows = Json::array();
  launch({.ranks = 1}, [&](const Rank& rank) {
    const BatchSampler data(text, config.model.context, 1), other(text, config.model.context, 2);
    std::vector<Batch> windows;
    windows.push_back(other.batch(rank.device, 0, 64));
    Trainer dense(rank, config);
    for (int step = 0; step < kSteps; ++step) dense.step(data);
    rows.push_back({{"model", "dense"}, {"loss", dense.evaluate(windows)}});
    for (const char* router : {"top2", "switch"})
      for (const bool starts : {true, false}) {
        TrainConfig sparse = config;
        sparse.model.experts = {.count = 8, .every = 1, .router = router};
        Trainer trainer(rank, sparse, expert_parallel());
        if (starts) upcycle_model(trainer.model(), dense.model());
        rows.push_back({{"model", fmt::format("{}, {}", router, starts ? "upcycled" : "drawn")},
                        {"loss", trainer.evaluate(windows)}});
      }
  });
  fmt::print(
      "\nA small GPT behind {} steps, and models with 8 experts in each block at their first, F32; "
      "ln 4 is\n1.386.\n\n",
      kSteps);
  print_table(rows);
  return rows;
}

}  // namespace
}  // namespace aisc

int main(int argc, char** argv) {
  return aisc::measuring_program(
      argc, argv, "What grows with experts, what does not, and what dice drop.",
      [](aisc::CommandLine&) {},
      [] {
        return nlohmann::ordered_json{{"mixture", aisc::mixture()},  {"dropped", aisc::dropped()},
                                      {"weights", aisc::weights()},  {"bytes", aisc::bytes()},
                                      {"flops", aisc::flops()},      {"grids", aisc::grids()},
                                      {"upcycled", aisc::upcycled()}};
      });
}
