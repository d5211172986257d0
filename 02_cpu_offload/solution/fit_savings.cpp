#include "02_cpu_offload/fit_savings.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "02_cpu_offload/saved_to_host.h"
#include "common/core/error.h"

namespace aisc {
namespace {

constexpr int kMostTries = 12;

// What each layer of rank 0 takes and saves in the first micro-batch.
class LayerMeter final : public LayerHook {
 public:
  struct Costs {
    std::vector<LayerCost> layers;
    std::vector<bool> are_blocks;
  };
  LayerMeter(const Rank& rank, const Model& model, const Link& copies, Costs& costs)
      : rank_(rank), copies_(copies), costs_(costs) {
    costs_.layers.assign(model.layers.size(), {});
    costs_.are_blocks.clear();
    for (const auto& layer : model.layers)
      costs_.are_blocks.push_back(layer->name().starts_with("blocks."));
  }

  void before_forward(std::size_t /*layer*/, const Pass& /*pass*/) override { begin(); }
  void after_forward(std::size_t layer, const Pass& pass, Saved& saved) override {
    if (pass.micro_batch > 0) return;
    LayerCost& cost = costs_.layers[layer];
    cost.forward_seconds = since();
    cost.saved_bytes = cost.stays_bytes = 0;
    cost.copy_seconds = 0;
    std::set<const void*> seen;
    for (const Tensor& tensor : saved.tensors()) {
      if (!tensor || tensor.count() == 0 || !seen.insert(tensor.view().raw()).second) continue;
      const auto bytes = static_cast<std::int64_t>(tensor.bytes());
      cost.saved_bytes += bytes;
      if (is_worth_moving(tensor, SavedToHostOptions().least_bytes))
        cost.copy_seconds +=
            copies_.latency_seconds + static_cast<double>(bytes) * copies_.seconds_per_byte;
      else
        cost.stays_bytes += bytes;
    }
  }
  void before_backward(std::size_t /*layer*/, const Pass& /*pass*/, Saved& /*saved*/) override {
    begin();
  }
  void after_backward(std::size_t layer, const Pass& pass) override {
    if (pass.micro_batch == 0) costs_.layers[layer].backward_seconds = since();
  }

 private:
  void begin() { begin_ = rank_.clock.now(); }
  double since() const { return rank_.clock.now() - begin_; }

  const Rank rank_;
  const Link copies_;
  Costs& costs_;
  double begin_ = 0;
};

struct Measured {
  StepMeasure step;
  LayerMeter::Costs costs;
};

Measured metered(const TrainConfig& config, StepParts parts, const Link& copies,
                 const MeasureStep& measure) {
  Measured result;
  parts.hooks.push_back(
      [&](const Rank& rank, const Model& model, Mesh* mesh) -> std::unique_ptr<LayerHook> {
        const MeshPlace place = mesh ? mesh->place() : MeshPlace{.dp = rank.world.rank()};
        if (place.dp + place.tp + place.cp > 0) return std::make_unique<LayerHook>();
        return std::make_unique<LayerMeter>(rank, model, copies, result.costs);
      });
  result.step = measure(config, parts);
  return result;
}

// With all kept, and with all blocks recomputed: input_bytes are what these save then.
std::vector<LayerCost> costs_of(const Measured& kept, const Measured& recomputed) {
  std::vector<LayerCost> layers = kept.costs.layers;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    LayerCost& layer = layers[i];
    layer.input_bytes = recomputed.costs.layers[i].saved_bytes;
    layer.recomputes = kept.costs.are_blocks[i] && layer.input_bytes < layer.saved_bytes;
    layer.moves = layer.saved_bytes > layer.stays_bytes && i + 1 < layers.size();
  }
  return layers;
}

FittedSavings fitted(std::vector<Saving> layers, const std::vector<bool>& are_blocks) {
  FittedSavings result{.layers = std::move(layers), .recomputed = {}, .offloaded = {}, .step = {}};
  for (std::size_t i = 0; i < are_blocks.size(); ++i) {
    if (are_blocks[i]) result.recomputed.push_back(result.layers[i] == Saving::Recompute);
    result.offloaded.push_back(result.layers[i] == Saving::Offload);
  }
  return result;
}

}  // namespace

FittedSavings fit_savings(const TrainConfig& config, const StepParts& parts, const Link& copies,
                          std::int64_t capacity_bytes, const MeasureStep& measure) {
  const auto run = [&](Recompute recompute, StepParts with) {
    TrainConfig own = config;
    own.recompute = std::move(recompute);
    return metered(own, std::move(with), copies, measure);
  };
  const Measured kept = run({}, parts), again = run({.blocks = 1}, parts);
  const std::vector<LayerCost> costs = costs_of(kept, again);
  const SavingPlan all_kept = plan_of(costs, std::vector<Saving>(costs.size(), Saving::Keep));
  FittedSavings best = fitted(all_kept.layers, kept.costs.are_blocks);
  best.step = kept.step;
  // What is there beside what layers save: known of the run that kept all, and more of others.
  std::int64_t beside = kept.step.peak_bytes - all_kept.peak_bytes, least = kept.step.peak_bytes;
  for (int i = 0; i < kMostTries && best.step.peak_bytes > capacity_bytes; ++i) {
    const std::optional<SavingPlan> plan = fastest_within(costs, capacity_bytes - beside);
    if (!plan) break;
    best = fitted(plan->layers, kept.costs.are_blocks);
    const bool moves = std::count(best.offloaded.begin(), best.offloaded.end(), true) > 0;
    best.step = run({.chosen = best.recomputed},
                    moves ? activations_on_host(parts, {.layers = best.offloaded}) : parts)
                    .step;
    least = std::min(least, best.step.peak_bytes);
    beside += std::max<std::int64_t>(1, best.step.peak_bytes - capacity_bytes);
  }
  if (best.step.peak_bytes > capacity_bytes)
    fail(
        fmt::format("--recompute auto: a rank needs {:.4g} GB at least, found {:.4g}: try "
                    "--offload weights, more --micro-batches, or a smaller --batch",
                    static_cast<double>(least) / 1e9, static_cast<double>(capacity_bytes) / 1e9));
  return best;
}

}  // namespace aisc
