#include "13_vision/classifier_weights.h"

#include <utility>

#include "common/comm/host_values.h"

namespace aisc {
namespace {

bool is_summed(const ParameterStore& store) { return store.parameters()[0]->sync == Sync::Data; }

}  // namespace

ClassifierWeights::ClassifierWeights(Device& device, const Model& model, std::uint64_t seed) {
  for (const Sync sync : {Sync::Data, Sync::ExpertData})
    if (std::vector<Unit> units = make_units(model, sync); !units.empty()) {
      stores_.push_back(
          std::make_unique<ParameterStore>(device, std::move(units), ParameterStore::Options{}));
      stores_.back()->initialize(seed);
    }
}

std::vector<OptimizerSlice> ClassifierWeights::slices() const {
  std::vector<OptimizerSlice> all;
  for (const auto& store : stores_)
    for (OptimizerSlice& slice : slices_of(store->parameters())) all.push_back(std::move(slice));
  return all;
}

void ClassifierWeights::clear_grads() {
  for (const auto& store : stores_) store->clear_grads();
}

void ClassifierWeights::sum_grads(Communicator& data_ranks) {
  for (const auto& store : stores_)
    if (is_summed(*store))
      data_ranks.all_reduce(store->grads()).wait();  // comm: every gradient, once a step
}

std::int64_t ClassifierWeights::parameters(Communicator& world, Communicator& data_ranks) const {
  std::int64_t own = 0, spread = 0;  // spread: what each data rank has others of
  for (const auto& store : stores_) (is_summed(*store) ? own : spread) += store->parameter_count();
  return sum_of_all(world, own) / data_ranks.size() + sum_of_all(world, spread);
}

}  // namespace aisc
