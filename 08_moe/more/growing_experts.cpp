#include "08_moe/more/growing_experts.h"

#include <vector>

#include "08_moe/expert_parallel.h"
#include "08_moe/moe_layer.h"
#include "common/model/emulated_device.h"
#include "common/nn/parameter_store.h"
#include "common/train/trainer.h"

namespace aisc {
namespace {

Machine without_limit() {
  Machine machine = find_machine("limitless");
  machine.capacity = 0;
  return machine;
}

std::int64_t elements(Experts& experts) {
  std::int64_t all = 0;
  for (const Parameter* p : experts.parameters()) all += p->shape.count();
  return all;
}

}  // namespace

std::span<const GshardModel> gshard_models() {
  static constexpr GshardModel kModels[] = {
      {"2048E, 36L", 2048, 36, 600e9, 44.3}, {"2048E, 12L", 2048, 12, 200e9, 41.3},
      {"512E, 36L", 512, 36, 150e9, 43.7},   {"512E, 12L", 512, 12, 50e9, 40.0},
      {"128E, 36L", 128, 36, 37e9, 39.0},    {"128E, 12L", 128, 12, 12.5e9, 36.7}};
  return kModels;
}

ExpertWeights expert_weights(const GshardModel& model) {
  ExpertWeights weights{};
  const Machine machine = without_limit();
  launch(on_machine(machine, 1, {.meta = true}), [&](const Rank& rank) {
    const auto layers = static_cast<int>(model.layers / 2), cores = static_cast<int>(model.experts);
    const Experts::Sizes sizes{model.experts, 1024, 8192, 0.02};
    Experts all(rank, "all", sizes, 0, 1), own(rank, "own", sizes, 0, cores);
    weights = {layers * elements(all), layers * elements(own)};
  });
  return weights;
}

RankBytes bytes_of_a_rank(int ranks, int ep, std::int64_t experts) {
  TrainConfig config{.model = {.layers = 4,
                               .heads = 4,
                               .width = 256,
                               .context = 128,
                               .vocabulary = 512,
                               .experts = {.count = experts}},
                     .batch = 2 * ranks,
                     .ep = ep};
  const std::vector<std::uint8_t> text(1024, 1);
  RankBytes bytes{};
  const Machine machine = without_limit();
  launch(on_machine(machine, ranks, {.meta = true}), [&](const Rank& rank) {
    Trainer trainer(rank, config, expert_parallel());
    trainer.step(BatchSampler(text, config.model.context, 1));
    if (rank.world.rank() != 0) return;
    const Ledger ledger = rank.device.ledger();
    bytes = {ledger[Purpose::Parameters].live_bytes, ledger[Purpose::Gradients].live_bytes,
             ledger[Purpose::Optimizer].live_bytes, ledger.total.peak_bytes};
  });
  return bytes;
}

TokenFlops flops_of_a_token(const std::string& router, std::int64_t experts, std::int64_t width) {
  constexpr std::int64_t kTokens = 64;
  TokenFlops flops{};
  const Machine machine = without_limit();
  launch(on_machine(machine, 1, {.meta = true}), [&](const Rank& rank) {
    Model model;
    model.layers.push_back(std::make_unique<MoeLayer>(
        rank, "moe",
        MoeLayer::Options{.experts = {.count = experts, .router = router},
                          .width = width,
                          .hidden = 4 * width,
                          .residual_stddev = 0.02}));
    std::vector<std::unique_ptr<ParameterStore>> stores;
    for (const Sync sync : {Sync::Data, Sync::ExpertData})
      stores.push_back(std::make_unique<ParameterStore>(rank.device, make_units(model, sync),
                                                        ParameterStore::Options{}));
    ExtraLoss extra{.factor = 1};
    const Pass pass{.extra = &extra};
    Saved saved;
    rank.device.listen([&](const OpCost& cost) {
      (cost.product ? flops.products : flops.others) += cost.flops / kTokens;
    });
    Tensor x({1, kTokens, width}, DType::F32, rank.device);
    x = model.layers[0]->forward(std::move(x), saved, pass);
    model.layers[0]->backward(std::move(x), saved, pass);
    rank.device.listen(nullptr);
  });
  return flops;
}

}  // namespace aisc
