#include "06_tensor_parallel/split_step.h"

#include <utility>

#include "06_tensor_parallel/parallel_block.h"
#include "common/model/emulated_device.h"
#include "common/model/replicas.h"
#include "common/nn/driver.h"
#include "common/nn/parameter_store.h"
#include "common/optim/optimizer.h"

namespace aisc {
namespace {

std::int64_t bytes_of_type(DType dtype) { return static_cast<std::int64_t>(size_of(dtype)); }

StepFigures run_on(const Rank& rank, const GptConfig& config, const SplitStep& step) {
  const GptParts parts =
      step.recompute.parts(step.parts ? step.parts(rank.world) : tensor_parallel_parts(rank.world));
  const Model model = make_gpt(rank, config, parts, step.blocks);
  // Those of which tensor ranks have copies are in a store of their own.
  const ParameterStore::Options types{.value_dtype = config.dtype, .grad_dtype = config.dtype};
  ParameterStore own(rank.device, make_units(model, Sync::Data), types);
  ParameterStore copied(rank.device, make_units(model, Sync::DataAndTensor), types);
  std::vector<OptimizerSlice> slices = slices_of(own.parameters());
  for (OptimizerSlice& slice : slices_of(copied.parameters())) slices.push_back(std::move(slice));
  AdamW adam(std::move(slices), {});
  const auto tokens = [&] {
    return Tensor({step.samples, config.context}, DType::I32, rank.device);
  };
  const auto boundary = [&] {
    return Tensor({step.samples, config.context / parts.token_parts, config.width}, config.dtype,
                  rank.device);
  };
  StepFigures figures{.parameters = own.parameter_count() + copied.parameter_count()};
  const std::int64_t before = rank.device.ledger()[Purpose::Activations].live_bytes;
  std::vector<Saved> saved(model.layers.size() + 1);  // the loss's is the last
  double products = 0;
  rank.device.listen([&](const OpCost& cost) { products += cost.product ? cost.flops : 0; });
  double begin = rank.clock.now();
  const auto lap = [&] { return rank.clock.now() - std::exchange(begin, rank.clock.now()); };

  Tensor x = step.blocks.begin == 0 ? tokens() : boundary();  // (B, T) or (B, T, C)
  x = forward_layers(model, std::move(x), saved, {});
  if (model.loss) model.loss->forward(std::move(x), tokens(), saved.back(), {});
  x = {};
  figures.forward_seconds = lap();
  figures.kept_bytes = rank.device.ledger()[Purpose::Activations].live_bytes - before;
  for (std::size_t i = 0; i < model.layers.size(); ++i)
    figures.layer_bytes.push_back(saved[i].bytes());

  x = model.loss ? model.loss->backward(saved.back(), 1) : boundary();
  backward_layers(model, std::move(x), saved, {});
  figures.backward_seconds = lap();
  rank.device.listen(nullptr);
  figures.product_flops = products;
  figures.waiting_seconds = rank.trace.seconds_by_part()["communication"];
  adam.step({.learning_rate = 1e-4});
  figures.update_seconds = lap();
  figures.ledger = rank.device.ledger();
  return figures;
}

}  // namespace

StepFigures run_step(Machine machine, const GptConfig& config, const SplitStep& step) {
  machine.capacity = 0;
  const Network network = machine.network(step.ranks);
  StepFigures figures;
  launch(on_machine(machine, 1, {.meta = true}), [&](const Rank& own) {
    const auto tp = make_replicas(step.ranks, network, own);
    figures = run_on({*tp, own.device, own.clock, own.trace}, config, step);
  });
  return figures;
}

double step_flops(const GptConfig& config, const SplitStep& step) {
  const std::int64_t s = config.context;
  return static_cast<double>(step.samples * s) *
         (config.flops_per_token(s) + step.recompute.repeated_flops_per_token(config, s));
}

Machine one_rank_a_node(Machine machine) {
  machine.nodes *= std::exchange(machine.ranks_per_node, 1);
  machine.cards_per_node = 1;
  return machine;
}

Divided block_parameters(const GptConfig& config) {
  const std::int64_t h = config.width;
  return {.split = 12 * h * h + 7 * h, .whole = 6 * h};
}

Divided block_activations(const GptConfig& config, std::int64_t samples) {
  const std::int64_t h = config.width, tokens = samples * config.context;
  const std::int64_t element = bytes_of_type(config.dtype);
  const std::int64_t statistic = bytes_of_type(statistics_of(config.dtype));
  return {.split = tokens * (12 * h * element + config.heads * statistic),
          .whole = tokens * (4 * h * element + 4 * statistic)};
}

double published_block_activations(const GptConfig& config, std::int64_t samples, int ranks) {
  const auto s = static_cast<double>(config.context), h = static_cast<double>(config.width);
  const double t = ranks, scores = 5 * static_cast<double>(config.heads) * s;
  return s * static_cast<double>(samples) * (h * (10 + 24 / t) + scores / t);
}

}  // namespace aisc
