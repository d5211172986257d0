// Training whose loss is scaled, with gradients that overflow in some steps.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "10_model_compression/scaled_step.h"
#include "tests/train/small_run.h"

namespace aisc::scaled_runs {

// Makes a gradient infinite in some steps.
class Overflows final : public LayerHook {
 public:
  Overflows(const Model& model, std::set<std::uint64_t> steps)
      : model_(model), steps_(std::move(steps)) {}
  void after_backward(std::size_t layer, const Pass& pass) override {
    const std::vector<Parameter*> all = model_.layers[layer]->parameters();
    if (all.empty() || !steps_.contains(pass.step) || !pass.last_micro_batch) return;
    const View grad = all[0]->grad();
    dispatch(grad.dtype(), [&](auto t) {
      grad.data<decltype(t)>()[0] = decltype(t)(std::numeric_limits<float>::infinity());
    });
  }

 private:
  const Model& model_;
  std::set<std::uint64_t> steps_;
};

inline StepParts scaled_parts(const LossScaleOptions& rule,
                              const std::set<std::uint64_t>& bad = {}) {
  StepParts parts;
  parts.scale = [rule] { return scaled_step(rule); };
  parts.hooks.push_back([bad](const Rank&, const Model& model, Mesh*) {
    return std::make_unique<Overflows>(model, bad);
  });
  return parts;
}

struct Trained {
  TestWorld world;
  Trainer trainer;
  std::vector<std::uint8_t> text = words(500);
  BatchSampler data;
  Trained(const TrainConfig& config, StepParts parts)
      : trainer(world.rank, config, std::move(parts)),
        data(text, config.model.context, config.seed) {}
  std::vector<std::vector<double>> numbers() const {
    std::vector<std::vector<double>> all{to_doubles(trainer.parameters().values())};
    for (const Optimizer::State& state : trainer.optimizer().state())
      all.push_back(to_doubles(state.value));
    return all;
  }
};

}  // namespace aisc::scaled_runs
