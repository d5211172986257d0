// A step of one device of a published model.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "08_moe/more/one_of_experts.h"
#include "08_moe/more/paper_models.h"
#include "common/core/error.h"
#include "common/model/emulated_device.h"
#include "common/nn/driver.h"
#include "common/nn/parameter_store.h"
#include "common/optim/optimizer.h"

namespace aisc {
namespace {

// Forward and backward of a micro-batch, and an update.
void measure_device(const Rank& rank, const PaperModel& model, OneOfExperts& experts,
                    DeviceStep& step) {
  const Model stage = make_gpt(rank, model.config, model.parts(experts), model.blocks);
  const ParameterStore::Options types{.value_dtype = model.config.dtype,
                                      .grad_dtype = model.config.dtype};
  ParameterStore copied(rank.device, make_units(stage, Sync::Data), types);
  ParameterStore own(rank.device, make_units(stage, Sync::ExpertData), types);
  std::vector<OptimizerSlice> slices = slices_of(copied.parameters());
  for (OptimizerSlice& slice : slices_of(own.parameters())) slices.push_back(std::move(slice));
  AdamW adam(std::move(slices), {});
  const auto bytes = [&](Purpose purpose) {
    return static_cast<double>(rank.device.ledger()[purpose].live_bytes);
  };
  const auto tokens = [&] {
    return Tensor({step.samples, model.config.context}, DType::I32, rank.device);
  };
  const auto boundary = [&] {
    return Tensor({step.samples, model.config.context, model.config.width}, model.config.dtype,
                  rank.device);
  };
  const double before = bytes(Purpose::Activations), begin = rank.clock.now();
  std::vector<Saved> saved(stage.layers.size() + 1);  // the loss's is the last
  ExtraLoss extra{.factor = 1};
  const Pass pass{.extra = &extra};
  Tensor x = forward_layers(stage, model.blocks.embedding ? tokens() : boundary(), saved, pass);
  if (stage.loss) stage.loss->forward(std::move(x), tokens(), saved.back(), {});
  x = {};
  step.activation_bytes = bytes(Purpose::Activations) - before;
  backward_layers(stage, stage.loss ? stage.loss->backward(saved.back(), 1) : boundary(), saved,
                  pass);
  step.micro_batch_seconds = rank.clock.now() - begin;
  step.waiting_seconds = experts.waiting_seconds();
  step.sent_bytes = experts.stats().sent().wire_bytes;
  adam.step({.learning_rate = 1e-4});
  step.update_seconds = rank.clock.now() - begin - step.micro_batch_seconds;
  step.parameter_bytes = bytes(Purpose::Parameters);
  step.gradient_bytes = bytes(Purpose::Gradients);
  step.optimizer_bytes = bytes(Purpose::Optimizer);

  const Machine& machine = experts.machine();
  const auto ring = [&](const ParameterStore& store, int ranks) {  // 2 (n - 1)/n S
    const double size = static_cast<double>(store.layout().count() *
                                            static_cast<std::int64_t>(size_of(store.grad_dtype())));
    const Link& link = ranks > machine.ranks_per_node ? machine.card_link : machine.node_link;
    return 2.0 * (ranks - 1) / ranks * size * link.seconds_per_byte;
  };
  const int data_ranks = step.devices / model.stages;
  step.sum_seconds = ring(copied, data_ranks) + ring(own, data_ranks / step.expert_ranks);
}

}  // namespace

DeviceStep run_device(const PaperModel& model, Machine machine, AllToAll kind, int devices,
                      std::int64_t batch) {
  const int data_ranks = devices / model.stages;
  DeviceStep step{.devices = devices,
                  .expert_ranks = std::min(data_ranks, model.most_expert_ranks)};
  const std::int64_t samples = batch / data_ranks;
  if (samples < 1) fail(fmt::format("{}: {} samples on {} ranks", model.name, batch, data_ranks));
  step.samples = std::min(samples, model.samples);
  step.micro_batches = samples / step.samples;
  machine.capacity = 0;
  launch(on_machine(machine, 1, {.meta = true}), [&](const Rank& rank) {
    OneOfExperts experts(kind, machine, step.expert_ranks, rank);
    measure_device(rank, model, experts, step);
  });
  return step;
}

int half_at(std::span<const DeviceStep> steps) {
  const auto half =
      std::ranges::find_if(steps, [](const DeviceStep& step) { return step.share() >= 0.5; });
  return half == steps.end() ? 0 : half->devices;
}

}  // namespace aisc
