#include "02_cpu_offload/gradients_home.h"

#include <utility>

#include "04_sharding/sharded_norm.h"
#include "04_sharding/sharded_units.h"
#include "common/core/error.h"
#include "common/ops/ops.h"

namespace aisc {

GradientsHome::GradientsHome(const Rank& rank, ParameterStore& store)
    : rank_(rank), store_(store), host_(host_of(rank)), written_(store.units().size()) {
  grads_ = Tensor::zeros({store.layout().count() / rank.world.size()}, store.grad_dtype(),
                         host_.memory(), Purpose::Gradients);
}

void GradientsHome::begin() { written_.assign(written_.size(), false); }

void GradientsHome::bind(std::size_t unit) {
  const std::int64_t count = store_.layout().units()[unit].range.count();
  store_.bind_grads(unit,
                    Tensor({count}, grads_.dtype(), rank_.device, Purpose::Gradients));  // (padded)
}

// One layer's gradients are on their way while the layer below computes: those of the layer above
// have arrived by then.
void GradientsHome::send(std::size_t unit) {
  land();
  store_.complete_grads(unit);
  Tensor slice = store_.unbind_grads(unit);
  const int ranks = rank_.world.size();
  const Range place = own_range(store_.layout(), unit, ranks);
  if (ranks > 1) {
    Tensor sum({place.count()}, grads_.dtype(), rank_.device, Purpose::Gradients);
    rank_.world.reduce_scatter(slice, sum).wait();  // comm: a slice's sum to each rank
    slice = std::move(sum);
  }
  // LAB 02.3: and home again
  // > `place` is the unit's in grads_. going_ holds `slice` and its copy, of Queue::ToHost, until
  // > land(), below, waits for it and adds going_.arrived, if there is one, to going_.place.
  // > written_ is yours to keep.
  going_.place = grads_.view().flat(place.begin, place.count());
  if (written_[unit])
    going_.arrived = Tensor({place.count()}, grads_.dtype(), host_.memory(), Purpose::Gradients);
  going_.slice = std::move(slice);
  going_.copy = rank_.device.copy_async(written_[unit] ? going_.arrived.view() : going_.place,
                                        going_.slice, Queue::ToHost);
  written_[unit] = true;
  // END LAB 02.3
}

void GradientsHome::land() {
  if (!going_.slice) return;
  const auto span = rank_.trace.span("communication", "gradients to the host");
  Going arrived = std::exchange(going_, {});
  arrived.copy.wait();
  if (arrived.arrived) {
    host_.begin();
    ops::add(arrived.place, arrived.place, arrived.arrived);
  }
  host_.behind(arrived.place);
}

void GradientsHome::finish() {
  land();
  host_.begin();
  for (std::size_t unit = 0; unit < written_.size(); ++unit) {
    const Range own = own_range(store_.layout(), unit, rank_.world.size());
    if (!written_[unit]) host_.memory().zero(grads_.view().flat(own.begin, own.count()));
  }
  host_.wait();
}

HostGradients::HostGradients(const Rank& rank, const Model& model, ParameterStore& store)
    : Reducer(rank, store), layers_(layer_units(model, store.units())), gradients_(rank, store) {}

std::vector<OptimizerSlice> HostGradients::slices() const {
  std::vector<OptimizerSlice> slices;
  for (const ShardPiece& piece :
       shard_pieces(store().units(), store().layout(), rank().world.rank(), rank().world.size()))
    slices.push_back(slice_of(piece, store().values().flat(piece.in_model, piece.count),
                              gradients_.slices().flat(piece.in_shards, piece.count)));
  return slices;
}

void HostGradients::before_backward(std::size_t layer, const Pass& pass, Saved& /*saved*/) {
  require_at_once(pass);
  for (const std::size_t unit : layers_[layer].reads) gradients_.bind(unit);
}

void HostGradients::after_backward(std::size_t layer, const Pass& /*pass*/) {
  for (const std::size_t unit : layers_[layer].reads) gradients_.send(unit);
}

double HostGradients::norm(const MeshPlace& place) const {
  return norm_on_host(rank(), slices(), place);
}

double norm_on_host(const Rank& rank, std::span<const OptimizerSlice> mine,
                    const MeshPlace& place) {
  Host& host = host_of(rank);
  host.begin();
  const double norm = norm_of_shards(rank.world, mine, place);
  host.wait();
  return norm;
}

void require_at_once(const Pass& pass) {
  if (pass.deferred)
    fail("offload: gradients go home behind their layer: weight gradients cannot be deferred");
}

StepParts gradients_on_host(StepParts parts) {
  parts.reducer = [](const Rank& rank, const Model& model, ParameterStore& store) {
    return std::make_unique<HostGradients>(rank, model, store);
  };
  parts.divided = true;
  parts.all_gradients = false;
  return parts;
}

}  // namespace aisc
