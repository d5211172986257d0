// The weights of a classifier on a rank: those whose gradients ranks sum, and experts.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/nn/model.h"
#include "common/nn/parameter_store.h"
#include "common/optim/optimizer.h"

namespace aisc {

// Of a whole model, or a stage of one. Experts, of which each of the ranks that share a batch has
// others, have a store of their own, whose gradients are whole where they are.
class ClassifierWeights {
 public:
  // In F32, drawn from the seed. The model's parameters must outlive this.
  ClassifierWeights(Device& device, const Model& model, std::uint64_t seed);

  const std::vector<std::unique_ptr<ParameterStore>>& stores() const { return stores_; }
  std::vector<OptimizerSlice> slices() const;
  void clear_grads();
  // Collective; blocks. Once a step.
  void sum_grads(Communicator& data_ranks);
  // Of the whole model, on all ranks of `world`. Collective.
  std::int64_t parameters(Communicator& world, Communicator& data_ranks) const;

 private:
  std::vector<std::unique_ptr<ParameterStore>> stores_;
};

}  // namespace aisc
