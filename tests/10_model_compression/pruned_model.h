// One matrix of a block that is pruned, whole or a rank's part, with gradients that are drawn.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/core/range.h"
#include "common/core/rng.h"
#include "common/nn/parameter_store.h"
#include "common/train/step_parts.h"
#include "tests/support/drawn.h"
#include "tests/support/tensors.h"

namespace aisc {

inline constexpr std::uint64_t kPruningSeed = 3;

// A matrix of a block, whole or split over `parts` ranks, and a bias.
class PrunedLayer final : public Layer {
 public:
  PrunedLayer(const Rank& rank, const Shape& shape, int split_dim = -1, int part = 0, int parts = 1)
      : Layer(rank, "blocks.0.mlp.fc"),
        weight(split_dim < 0 ? whole_parameter(name_ + ".weight", shape, Init::normal(1), true)
                             : split_parameter(name_ + ".weight", shape, split_dim, part, parts,
                                               Init::normal(1), true)),
        bias(whole_parameter(name_ + ".bias", {shape[0]}, Init::constant(0.01), false)) {}

  Tensor forward(Tensor x, Saved& /*saved*/, const Pass& /*pass*/) const override { return x; }
  Tensor backward(Tensor dy, Saved& /*saved*/, const Pass& /*pass*/) override { return dy; }
  std::vector<Parameter*> parameters() override { return {&weight, &bias}; }

  Parameter weight, bias;
};

struct PrunedModel {
  PrunedModel(const Rank& rank, const Shape& shape, DType dtype, int split_dim = -1, int part = 0,
              int parts = 1) {
    model.layers.push_back(std::make_unique<PrunedLayer>(rank, shape, split_dim, part, parts));
    store = std::make_unique<ParameterStore>(
        rank.device, make_units(model),
        ParameterStore::Options{.value_dtype = dtype, .grad_dtype = statistics_of(dtype)});
    store->initialize(kPruningSeed);
    write_gradients(0);
  }
  Parameter& weight() { return static_cast<PrunedLayer&>(*model.layers[0]).weight; }

  // Of step number `step`, drawn by the element of the whole matrix.
  void write_gradients(std::int64_t step) {
    for (Parameter* p : store->parameters()) {
      const Philox random(test_seed() + 100, p->name + " in step " + std::to_string(step));
      std::vector<double> numbers(index(p->shape.count()));
      for (const GlobalRun& run : global_runs(*p, {0, p->shape.count()}))
        for (std::int64_t i = 0; i < run.count; ++i)
          numbers[index(run.local + i)] =
              0.1 * random.normal(static_cast<std::uint64_t>(run.global + i));
      write_doubles(p->grad(), numbers);
    }
  }

  Model model;
  std::unique_ptr<ParameterStore> store;
};

inline void take_pruned_step(Optimizer& optimizer, UpdateHook& hook, std::int64_t step) {
  hook.before(optimizer, step);
  optimizer.step({.learning_rate = 0.05});
  hook.after(optimizer, step);
}

}  // namespace aisc
