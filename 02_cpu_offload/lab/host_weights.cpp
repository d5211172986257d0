// Yours to write; from 02_cpu_offload/solution/host_weights.cpp (stub 5b168e42998e).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
#include "02_cpu_offload/host_weights.h"

#include <utility>

#include "02_cpu_offload/host_update.h"
#include "04_sharding/shards.h"
#include "common/core/error.h"
#include "common/model/host.h"

namespace aisc {

HostWeights::HostWeights(const Rank& rank, const Model& model, ParameterStore& store,
                         const ResidencyOptions& options)
    : Reducer(rank, store),
      options_(options),
      layers_(layer_units(model, store.units())),
      here_(store.units().size()),
      coming_(store.units().size()),
      host_(host_of(rank)),
      gradients_(rank, store) {
  const std::int64_t count = store.layout().count() / rank.world.size();
  values_ = Tensor::zeros({count}, store.value_dtype(), host_.memory(), Purpose::Parameters);
}

Range HostWeights::own(std::size_t unit) const {
  return own_range(store().layout(), unit, rank().world.size());
}

std::vector<OptimizerSlice> HostWeights::slices() const {
  std::vector<OptimizerSlice> slices;
  for (const ShardPiece& piece :
       shard_pieces(store().units(), store().layout(), rank().world.rank(), rank().world.size()))
    slices.push_back(slice_of(piece, values_.view().flat(piece.in_shards, piece.count),
                              gradients_.slices().flat(piece.in_shards, piece.count)));
  return slices;
}

void HostWeights::fetch(std::size_t unit) {
  const Range slice = own(unit);
  Coming& coming = coming_[unit];
  // LAB 02.2: there
  // coming.slice is memory of the device (Purpose::Parameters) for slice.count() elements of the
  // type of values_, where the slice lies on the host. rank().device.copy_async(to, from,
  // Queue::ToDevice) begins and returns: arrive() waits. From now on the unit is here_.
  throw NotImplemented("lab 02.2: there", __FILE__, __LINE__);
  // END LAB 02.2
}

void HostWeights::arrive(std::size_t unit) {
  if (!coming_[unit].slice) return;
  Coming coming = std::exchange(coming_[unit], {});
  coming.copy.wait();
  host_.behind(values_.view().flat(own(unit).begin, own(unit).count()));
  const int ranks = rank().world.size();
  if (ranks > 1) {
    Tensor whole({coming.slice.count() * ranks}, values_.dtype(), rank().device,
                 Purpose::Parameters);
    rank().world.all_gather(coming.slice, whole).wait();  // comm: the unit's weights, n slices
    coming.slice = std::move(whole);
  }
  store().bind_values(unit, std::move(coming.slice));
}

// Weights on the device are a copy: they go without a trace.
void HostWeights::evict(std::size_t unit) {
  arrive(unit);
  store().unbind_values(unit);
  here_[unit] = false;
}

void HostWeights::release() {
  for (std::size_t unit = 0; unit < here_.size(); ++unit)
    if (here_[unit]) evict(unit);
}

void HostWeights::turn_to(const LayerTurn& turn, bool training) {
  const auto span = rank().trace.span("communication", "weights from the host");
  const Moves moves = moves_before(turn, layers_, here_, training, options_);
  for (const std::size_t unit : moves.evict) evict(unit);
  for (const std::size_t unit : moves.fetch) fetch(unit);
  const auto next = next_turn(turn, layers_.size(), training);
  const auto then = next ? next_turn(*next, layers_.size(), training) : std::nullopt;
  if (then)
    for (const std::size_t unit : layers_[then->layer].reads)
      if (!here_[unit]) host_.ahead(values_.view().flat(own(unit).begin, own(unit).count()));
  for (const std::size_t unit : moves.needed) arrive(unit);
}

void HostWeights::before_forward(std::size_t layer, const Pass& pass) {
  turn_to({layer, LayerTurn::Forward}, pass.training);
}

void HostWeights::after_forward(std::size_t layer, const Pass& pass, Saved& /*saved*/) {
  if (!pass.training && layer + 1 == layers_.size()) release();
}

void HostWeights::before_backward(std::size_t layer, const Pass& pass, Saved& /*saved*/) {
  require_at_once(pass);
  turn_to({layer, LayerTurn::Backward}, pass.training);
  for (const std::size_t unit : layers_[layer].reads) gradients_.bind(unit);
}

void HostWeights::after_backward(std::size_t layer, const Pass& /*pass*/) {
  for (const std::size_t unit : layers_[layer].reads) gradients_.send(unit);
}

void HostWeights::finish() {
  gradients_.finish();
  release();
}

double HostWeights::norm(const MeshPlace& place) const {
  return norm_on_host(rank(), slices(), place);
}

StepParts weights_on_host(StepParts parts, const ResidencyOptions& options) {
  parts.reducer = [options](const Rank& rank, const Model& model, ParameterStore& store) {
    return std::make_unique<HostWeights>(rank, model, store, options);
  };
  parts.divided = true;
  parts.all_values = parts.all_gradients = false;
  return update_on_host(std::move(parts));
}

}  // namespace aisc
