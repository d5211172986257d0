#include "05_pipeline/planner.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "common/comm/launch.h"
#include "common/core/error.h"
#include "common/model/emulated_device.h"
#include "common/nn/driver.h"
#include "common/nn/parameter_store.h"

namespace aisc {

double LayerTimer::now() const {
  rank_.device.synchronize();
  return rank_.clock.now();
}

void LayerTimer::before_forward(std::size_t /*layer*/, const Pass& /*pass*/) { begin_ = now(); }

void LayerTimer::after_forward(std::size_t layer, const Pass& /*pass*/, Saved& /*saved*/) {
  seconds_.at(layer).forward += now() - begin_;
}

void LayerTimer::before_backward(std::size_t /*layer*/, const Pass& /*pass*/, Saved& /*saved*/) {
  begin_ = now();
}

void LayerTimer::after_backward(std::size_t layer, const Pass& /*pass*/) {
  seconds_.at(layer).backward += now() - begin_;
}

std::vector<LayerSeconds> layer_seconds(const Rank& rank, const Model& model, const Tensor& tokens,
                                        const Tensor& targets, const Pass& pass) {
  if (!model.loss || model.layers.empty())
    fail(fmt::format("layer_seconds: a model of {} layers {} loss, expected all layers and a loss",
                     model.layers.size(), model.loss ? "with a" : "without a"));
  LayerTimer timer(rank, model.layers.size());
  const std::array<LayerHook*, 1> hooks{&timer};
  std::vector<Saved> saved(model.layers.size() + 1);
  Tensor x = forward_layers(model, tokens.share(), saved, pass, hooks);
  const double begin = timer.now();
  model.loss->forward(std::move(x), targets, saved.back(), pass);
  const double middle = timer.now();
  Tensor dy = model.loss->backward(saved.back(), 1);
  const double end = timer.now();
  backward_layers(model, std::move(dy), saved, pass, hooks);
  std::vector<LayerSeconds> seconds = timer.seconds();
  seconds.back().forward += middle - begin;
  seconds.back().backward += end - middle;
  return seconds;
}

std::vector<LayerSeconds> gpt_layer_seconds(const Machine& machine, const GptConfig& config,
                                            std::int64_t samples, std::int64_t tokens,
                                            const GptParts& parts) {
  config.validate();
  if (samples < 1 || tokens < 1 || tokens > config.context)
    fail(
        fmt::format("gpt_layer_seconds: a micro-batch of {} samples of {} tokens, expected 1 or "
                    "more of both and at most {} tokens",
                    samples, tokens, config.context));
  Machine roomy = machine;
  roomy.capacity = 0;
  std::vector<LayerSeconds> seconds;
  launch(on_machine(roomy, 1, {.meta = true}), [&](const Rank& rank) {
    const Model model = make_gpt(rank, config, parts);
    ParameterStore store(rank.device, all_units(model),
                         {.value_dtype = config.dtype, .grad_dtype = config.dtype});
    const Tensor ids({samples, tokens}, DType::I32, rank.device);  // tokens and targets (B, T)
    layer_seconds(rank, model, ids, ids, {.last_micro_batch = false});
    seconds = layer_seconds(rank, model, ids, ids, {.micro_batch = 1});
  });
  return seconds;
}

namespace {

constexpr std::int64_t kBeforeBlocks = 3, kBehindBlocks = 2;  // layers of make_gpt

// Of `parts` parts: layer i is in part i - before, those in front of the first in that, and those
// behind the last in that.
std::vector<double> summed(const GptConfig& config, std::span<const LayerSeconds> layers,
                           std::int64_t before, std::int64_t parts) {
  if (std::ssize(layers) != config.layers + kBeforeBlocks + kBehindBlocks)
    fail(
        fmt::format("block_seconds: {} layers for {} blocks, expected {} more than blocks: of a "
                    "whole GPT, each block one layer",
                    layers.size(), config.layers, kBeforeBlocks + kBehindBlocks));
  std::vector<double> seconds(index(parts));
  for (std::int64_t i = 0; i < std::ssize(layers); ++i) {
    const std::int64_t part = std::clamp(i - before, std::int64_t{0}, parts - 1);
    seconds[index(part)] += layers[index(i)].forward + layers[index(i)].backward;
  }
  return seconds;
}

}  // namespace

std::vector<double> block_seconds(const GptConfig& config, std::span<const LayerSeconds> layers) {
  return summed(config, layers, kBeforeBlocks, config.layers);
}

std::vector<double> part_seconds(const GptConfig& config, std::span<const LayerSeconds> layers) {
  return summed(config, layers, kBeforeBlocks - 1, config.layers + 2);
}

std::vector<BlockRange> gpt_stages(const GptConfig& config, std::span<const std::int64_t> begins) {
  if (begins.empty() || begins[0] != 0)
    fail(fmt::format("gpt_stages: begins of {} stages, the first at {}, expected 0", begins.size(),
                     begins.empty() ? "no block" : fmt::format("block {}", begins[0])));
  std::vector<BlockRange> stages;
  for (std::size_t s = 0; s < begins.size(); ++s) {
    const std::int64_t end = s + 1 < begins.size() ? begins[s + 1] : config.layers;
    if (end <= begins[s] || end > config.layers)
      fail(fmt::format("gpt_stages: stage {} has blocks {} to {} of {}, expected one or more", s,
                       begins[s], end, config.layers));
    stages.push_back({begins[s], end});
  }
  return stages;
}

std::vector<BlockRange> part_stages(const GptConfig& config, std::span<const std::int64_t> begins) {
  const std::int64_t L = config.layers, parts = L + 2;
  GptConfig of_parts = config;  // each part taken for a block: the same begins are wrong of both
  of_parts.layers = parts;
  std::vector<BlockRange> stages = gpt_stages(of_parts, begins);
  for (BlockRange& stage : stages) {
    const bool embedding = stage.begin == 0, head = stage.end == parts;
    stage.begin = std::clamp(stage.begin - 1, std::int64_t{0}, L);
    stage.end = std::clamp(stage.end - 1, std::int64_t{0}, L);
    stage.embedding = embedding || stage.begin > 0;  // as it is where nothing is alone
    stage.head = head || stage.end < L;
  }
  return stages;
}

}  // namespace aisc
