#include "04_sharding/owned_units.h"

#include <memory>
#include <utility>

#include "04_sharding/sharded_norm.h"
#include "common/core/error.h"
#include "common/ops/ops.h"

namespace aisc {

OwnedWeights::OwnedWeights(const Rank& rank, const ParameterStore& store)
    : rank_(rank), store_(store), weights_(store.units().size()) {
  std::vector<std::int64_t> counts;
  for (const FlatUnit& unit : store.layout().units()) counts.push_back(unit.range.count());
  owners_ = owners_of(counts, rank.world.size());
  for (std::size_t u = 0; u < weights_.size(); ++u)
    if (owners_[u] == rank.world.rank())  // what pads it is sent, too: zeros
      weights_[u] =
          Tensor::zeros({counts[u]}, store.value_dtype(), rank.device, Purpose::Parameters);
}

DividedWeights::Coming OwnedWeights::gather(std::size_t unit) {
  Tensor whole = weights_[unit] ? weights_[unit].share()
                                : Tensor({store_.layout().units()[unit].range.count()},
                                         store_.value_dtype(), rank_.device, Purpose::Parameters);
  Work arrival = rank_.world.broadcast(  // comm: the unit's weights, from the owner to all
      whole, owner(unit));
  return {std::move(whole), std::move(arrival)};
}

Owners::Owners(const Rank& rank, const Model& model, ParameterStore& store,
               const OwnerOptions& options)
    : Reducer(rank, store),
      sum_(options.sum),
      layers_(layer_units(model, store.units())),
      parts_(rank, store),
      weights_(rank, store, parts_,
               GatheredWeights::plan_of(layers_, store.layout(), options.gather)),
      sums_(store.units().size()) {
  for (std::size_t u = 0; u < sums_.size(); ++u)
    if (is_mine(u)) sums_[u].gradients = memory_for_gradients(u);
}

// (count of the unit), padding included.
Tensor Owners::memory_for_gradients(std::size_t unit) const {
  return Tensor({store().layout().units()[unit].range.count()}, store().grad_dtype(), rank().device,
                Purpose::Gradients);
}

std::vector<OptimizerSlice> Owners::slices() const {
  std::vector<OptimizerSlice> slices;
  for (std::size_t u = 0; u < sums_.size(); ++u) {
    if (!is_mine(u)) continue;
    const FlatUnit& flat = store().layout().units()[u];
    for (std::size_t i = 0; i < flat.parameters.size(); ++i) {
      const Parameter& p = *store().units()[u].parameters[i];
      const Range& at = flat.parameters[i];
      const std::int64_t begin = at.begin - flat.range.begin;
      slices.push_back({.name = p.name,
                        .weight = parts_.own(u).flat(begin, at.count()),
                        .gradient = sums_[u].gradients.view().flat(begin, at.count()),
                        .decay = p.decay,
                        .parameter = &p});
    }
  }
  return slices;
}

void Owners::begin() {
  for (Sum& sum : sums_) sum.begun = false;
}

void Owners::before_forward(std::size_t layer, const Pass& pass) {
  weights_.turn_to(layer, {.training = pass.training});
}

void Owners::after_forward(std::size_t layer, const Pass& pass, Saved& /*saved*/) {
  if (!pass.training && layer + 1 == layers_.size()) weights_.release();
}

void Owners::before_backward(std::size_t layer, const Pass& pass, Saved& /*saved*/) {
  if (pass.deferred)
    fail("owners: gradients are freed behind a layer: weight gradients cannot be deferred");
  weights_.turn_to(layer, {.backward = true});
  // The owner's first gradients of a step are made where their sum is to be; later ones, and those
  // of all other ranks, in memory that sum() frees.
  for (const std::size_t unit : layers_[layer].reads) {
    const bool in_place = is_mine(unit) && !sums_[unit].begun;
    if (!store().has_grads(unit))
      store().bind_grads(unit,
                         in_place ? sums_[unit].gradients.share() : memory_for_gradients(unit));
  }
}

void Owners::after_backward(std::size_t layer, const Pass& /*pass*/) {
  for (const std::size_t unit : layers_[layer].completes) sum(unit);
}

// In the gradients' own memory: of a step's first micro-batch that is the owner's sum, to which
// those of later ones are added. Bytes sent, of all ranks together: (n - 1) times the unit by the
// reduce, twice that by the all-reduce.
void Owners::sum(std::size_t unit) {
  collect();
  store().complete_grads(unit);
  Tensor whole = store().unbind_grads(unit);
  Work work =
      sum_ == OwnerOptions::Sum::AllReduce
          ? rank().world.all_reduce(whole)  // comm: gradients, to all: only one needs them
          : rank().world.reduce(whole, whole, owner(unit));  // comm: gradients, to the owner
  Sum& sum = sums_[unit];
  sending_ = {.gradients = std::move(whole),
              .work = std::move(work),
              .adds_to = is_mine(unit) && sum.begun ? sum.gradients.view() : View()};
  sum.begun = true;
}

void Owners::collect() {
  {
    const auto span = rank().trace.span("communication", "gradients");
    sending_.work.wait();
  }
  if (sending_.adds_to) ops::add(sending_.adds_to, sending_.adds_to, sending_.gradients);
  sending_ = {};
}

double Owners::norm(const MeshPlace& place) const {
  std::vector<ConstView> mine;
  for (const OptimizerSlice& slice : slices())
    if (counts(*slice.parameter, true, place)) mine.push_back(slice.gradient);
  return norm_of_shards(rank().world, mine);
}

void Owners::take_slices() {
  const auto span = rank().trace.span("communication", "updated weights");
  weights_.take_parts();
}

StepParts owned(const OwnerOptions& options) {
  StepParts parts{.all_values = false, .all_gradients = false};
  parts.reducer = [options](const Rank& rank, const Model& model, ParameterStore& store) {
    return std::make_unique<Owners>(rank, model, store, options);
  };
  return parts;
}

}  // namespace aisc
