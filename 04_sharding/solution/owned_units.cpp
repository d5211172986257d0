#include "04_sharding/owned_units.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "04_sharding/sharded_norm.h"
#include "common/core/error.h"
#include "common/ops/ops.h"

namespace aisc {

Owners::Owners(const Rank& rank, const Model& model, ParameterStore& store,
               const OwnerOptions& options)
    : Reducer(rank, store),
      sum_(options.sum),
      layers_(layer_units(model, store.units())),
      units_(store.units().size()) {
  std::vector<std::int64_t> counts;
  for (const FlatUnit& unit : store.layout().units()) counts.push_back(unit.range.count());
  training_ = gather_schedule(layers_, counts, options.gather, Turns::ForwardAndBackward);
  evaluation_ = gather_schedule(layers_, counts, options.gather, Turns::Forward);
  const std::vector<int> owners = owners_of(counts, rank.world.size());
  for (std::size_t u = 0; u < units_.size(); ++u) {
    units_[u].owner = owners[u];
    units_[u].persists = counts[u] <= options.gather.persist;
    if (!is_mine(u)) continue;
    units_[u].weights = memory_for(u, Purpose::Parameters);
    rank.device.zero(units_[u].weights);  // what pads it is sent, too
    units_[u].sum = memory_for(u, Purpose::Gradients);
  }
}

// (count of the unit), padding included.
Tensor Owners::memory_for(std::size_t unit, Purpose purpose) const {
  return Tensor({store().layout().units()[unit].range.count()},
                purpose == Purpose::Gradients ? store().grad_dtype() : store().value_dtype(),
                rank().device, purpose);
}

std::vector<OptimizerSlice> Owners::slices() const {
  std::vector<OptimizerSlice> slices;
  for (std::size_t u = 0; u < units_.size(); ++u) {
    if (!is_mine(u)) continue;
    const FlatUnit& flat = store().layout().units()[u];
    for (std::size_t i = 0; i < flat.parameters.size(); ++i) {
      const Parameter& p = *store().units()[u].parameters[i];
      const FlatRange& at = flat.parameters[i];
      const std::int64_t begin = at.begin - flat.range.begin;
      slices.push_back({.name = p.name,
                        .weight = units_[u].weights.view().flat(begin, at.count()),
                        .gradient = units_[u].sum.view().flat(begin, at.count()),
                        .decay = p.decay,
                        .parameter = &p});
    }
  }
  return slices;
}

// Steps: as the broadcast's. Bytes sent, of all ranks together: (n - 1) times the unit. The owner
// sends from its own memory, and computes with it, too.
void Owners::broadcast(std::size_t unit) {
  State& state = units_[unit];
  state.coming = is_mine(unit) ? state.weights.share() : memory_for(unit, Purpose::Parameters);
  state.broadcast = rank().world.broadcast(  // comm: the unit's weights, from the owner to all
      state.coming, state.owner);
  state.whole = true;
}

void Owners::wait_for(std::size_t unit) {
  State& state = units_[unit];
  if (!state.coming) return;
  state.broadcast.wait();
  store().bind_values(unit, std::exchange(state.coming, Tensor()));
}

void Owners::free(std::size_t unit) {
  wait_for(unit);
  store().unbind_values(unit);
  units_[unit].whole = false;
}

void Owners::release(const std::vector<std::size_t>& but) {
  for (std::size_t unit = 0; unit < units_.size(); ++unit)
    if (units_[unit].whole && !units_[unit].persists &&
        std::find(but.begin(), but.end(), unit) == but.end())
      free(unit);
}

// As GatheredWeights does.
void Owners::turn_to(std::size_t layer, const std::vector<std::size_t>& wanted) {
  const auto span = rank().trace.span("communication", "weights");
  release(wanted);
  for (const std::size_t unit : wanted)
    if (!units_[unit].whole) broadcast(unit);
  for (const std::size_t unit : layers_[layer].reads) wait_for(unit);
}

void Owners::begin() {
  for (State& state : units_) state.summed = false;
}

void Owners::before_forward(std::size_t layer, const Pass& pass) {
  turn_to(layer, (pass.training ? training_ : evaluation_)[layer]);
}

void Owners::after_forward(std::size_t layer, const Pass& pass, Saved& /*saved*/) {
  if (!pass.training && layer + 1 == layers_.size()) release();
}

void Owners::before_backward(std::size_t layer, const Pass& pass, Saved& /*saved*/) {
  if (pass.deferred)
    fail("owners: gradients are freed behind a layer: weight gradients cannot be deferred");
  turn_to(layer, training_[2 * layers_.size() - 1 - layer]);
  for (const std::size_t unit : layers_[layer].reads) {
    const bool in_place = is_mine(unit) && !units_[unit].summed;
    if (!store().has_grads(unit))
      store().bind_grads(
          unit, in_place ? units_[unit].sum.share() : memory_for(unit, Purpose::Gradients));
  }
}

void Owners::after_backward(std::size_t layer, const Pass& /*pass*/) {
  for (const std::size_t unit : layers_[layer].completes) sum(unit);
}

// In the gradients' own memory: of a step's first micro-batch that is the owner's `sum`, to which
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
  State& state = units_[unit];
  sending_ = {.gradients = std::move(whole),
              .work = std::move(work),
              .adds_to = is_mine(unit) && state.summed ? state.sum.view() : View()};
  state.summed = true;
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
  release();
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (units_[unit].whole) free(unit);  // it persists
    if (units_[unit].persists) broadcast(unit);
  }
  for (std::size_t unit = 0; unit < units_.size(); ++unit) wait_for(unit);
}

StepParts owned(const OwnerOptions& options) {
  StepParts parts{.all_values = false, .all_gradients = false};
  parts.reducer = [options](const Rank& rank, const Model& model, ParameterStore& store) {
    return std::make_unique<Owners>(rank, model, store, options);
  };
  return parts;
}

}  // namespace aisc
