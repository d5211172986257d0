#include "04_sharding/gathered_weights.h"

#include <algorithm>
#include <utility>

#include "04_sharding/shards.h"

namespace aisc {

SlicedWeights::SlicedWeights(const Rank& rank, const ParameterStore& store)
    : rank_(rank),
      layout_(store.layout()),
      shards_(Tensor::zeros({layout_.count() / rank.world.size()}, store.value_dtype(), rank.device,
                            Purpose::Parameters)) {}

DividedWeights::Coming SlicedWeights::gather(std::size_t unit) {
  const Range own = own_range(layout_, unit, rank_.world.size());
  Tensor whole({layout_.units()[unit].range.count()}, shards_.dtype(), rank_.device,
               Purpose::Parameters);
  Work arrival = rank_.world.all_gather(  // comm: the unit's weights, a shard from each rank
      shards_.view().flat(own.begin, own.count()), whole);
  return {std::move(whole), std::move(arrival)};
}

GatheredWeights::Plan GatheredWeights::plan_of(std::span<const LayerUnits> layers,
                                               const FlatLayout& layout,
                                               const GatherOptions& options) {
  std::vector<std::int64_t> counts;
  for (const FlatUnit& unit : layout.units()) counts.push_back(unit.range.count());
  Plan plan{.reads = {},
            .training = gather_schedule(layers, counts, options, Turns::ForwardAndBackward),
            .evaluation = gather_schedule(layers, counts, options, Turns::Forward),
            .persist = options.persist};
  for (const LayerUnits& layer : layers) plan.reads.push_back(layer.reads);
  return plan;
}

GatheredWeights::GatheredWeights(const Rank& rank, ParameterStore& store, DividedWeights& parts,
                                 Plan plan)
    : rank_(rank),
      store_(store),
      parts_(parts),
      plan_(std::move(plan)),
      units_(store.units().size()) {
  for (std::size_t u = 0; u < units_.size(); ++u)
    units_[u].persists = store.layout().units()[u].range.count() <= plan_.persist;
}

void GatheredWeights::gather(std::size_t unit) {
  units_[unit].coming = parts_.gather(unit);
  units_[unit].whole = true;
}

void GatheredWeights::wait_for(std::size_t unit) {
  if (!units_[unit].coming.whole) return;
  DividedWeights::Coming coming = std::exchange(units_[unit].coming, {});
  coming.arrival.wait();
  store_.bind_values(unit, std::move(coming.whole));
}

void GatheredWeights::free(std::size_t unit) {
  wait_for(unit);
  store_.unbind_values(unit);
  units_[unit].whole = false;
}

void GatheredWeights::turn_to(std::size_t layer, const Turn& turn) {
  const std::size_t layers = plan_.reads.size();
  const std::vector<std::size_t>& wanted =
      turn.training ? plan_.training[turn.backward ? 2 * layers - 1 - layer : layer]
                    : plan_.evaluation[layer];
  const auto span = rank_.trace.span("communication", "weights");
  // LAB 04.3: gather, use, free
  // > `wanted` is this turn's list of the schedule, in the same order on all ranks, and
  // > plan_.reads[layer] are the units that the layer reads. free(), gather() and wait_for() do
  // > their part for one unit; is_whole() and units_[unit].persists say how it stands with one.
  for (std::size_t unit = 0; unit < units_.size(); ++unit)
    if (is_whole(unit) && !units_[unit].persists &&
        std::find(wanted.begin(), wanted.end(), unit) == wanted.end())
      free(unit);
  for (const std::size_t unit : wanted)
    if (!is_whole(unit)) gather(unit);
  for (const std::size_t unit : plan_.reads[layer]) wait_for(unit);
  // END LAB 04.3
}

void GatheredWeights::release() {
  // Memory first: what is freed here is where the next gathers go.
  for (std::size_t unit = 0; unit < units_.size(); ++unit)
    if (is_whole(unit) && !units_[unit].persists) free(unit);
}

void GatheredWeights::take_parts() {
  release();
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (!units_[unit].persists) continue;
    if (is_whole(unit)) free(unit);
    gather(unit);
  }
  for (std::size_t unit = 0; unit < units_.size(); ++unit)
    if (units_[unit].persists) wait_for(unit);
}

}  // namespace aisc
