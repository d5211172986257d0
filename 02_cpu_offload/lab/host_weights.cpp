// Yours to write; from 02_cpu_offload/solution/host_weights.cpp (stub c7f0b329b8f2).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
#include "02_cpu_offload/host_weights.h"

#include <utility>

#include "02_cpu_offload/host_memory.h"
#include "04_sharding/sharded_norm.h"
#include "04_sharding/shards.h"
#include "common/core/error.h"
#include "common/ops/ops.h"

namespace aisc {

HostWeights::HostWeights(const Rank& rank, const Model& model, ParameterStore& store,
                         const ResidencyOptions& options)
    : Reducer(rank, store),
      options_(options),
      layers_(layer_units(model, store.units())),
      host_(host_memory(rank)),
      here_(store.units().size()),
      coming_(store.units().size()),
      written_(store.units().size()) {
  const std::int64_t count = store.layout().count() / rank.world.size();
  values_ = Tensor::zeros({count}, store.value_dtype(), *host_, Purpose::Parameters);
  grads_ = Tensor::zeros({count}, store.grad_dtype(), *host_, Purpose::Gradients);
}

// The optimizer's memory is the host's, too: it goes before.
HostWeights::~HostWeights() = default;

Range HostWeights::own(std::size_t unit) const {
  return own_range(store().layout(), unit, rank().world.size());
}

std::vector<OptimizerSlice> HostWeights::slices() const {
  std::vector<OptimizerSlice> slices;
  const Communicator& ranks = rank().world;
  for (const ShardPiece& piece :
       shard_pieces(store().units(), store().layout(), ranks.rank(), ranks.size()))
    slices.push_back({.name = piece.parameter->name,
                      .weight = values_.view().flat(piece.in_shards, piece.count),
                      .gradient = grads_.view().flat(piece.in_shards, piece.count),
                      .decay = piece.parameter->decay,
                      .parameter = piece.parameter,
                      .begin = piece.begin});
  return slices;
}

void HostWeights::begin() { written_.assign(written_.size(), false); }

void HostWeights::fetch(std::size_t unit) {
  const Range slice = own(unit);
  Coming& coming = coming_[unit];
  // LAB 02.2: there
  // coming.slice is memory of the device (Purpose::Parameters) for slice.count() elements of the
  // type of values_, where the slice lies on the host. rank().device.copy_async(to, from,
  // Queue::ToDevice) begins and returns: arrive() waits. From now on the unit is here_.
  throw NotImplemented("lab 02.2: there", __FILE__, __LINE__);
  // END LAB 02.2
  to_device_bytes_ += static_cast<std::int64_t>(coming.slice.bytes());
}

void HostWeights::arrive(std::size_t unit) {
  if (!coming_[unit].slice) return;
  Coming coming = std::exchange(coming_[unit], {});
  coming.copy.wait();
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
  for (const std::size_t unit : moves.needed) arrive(unit);
}

void HostWeights::before_forward(std::size_t layer, const Pass& pass) {
  turn_to({layer, LayerTurn::Forward}, pass.training);
}

void HostWeights::after_forward(std::size_t layer, const Pass& pass, Saved& /*saved*/) {
  if (!pass.training && layer + 1 == layers_.size()) release();
}

void HostWeights::before_backward(std::size_t layer, const Pass& pass, Saved& /*saved*/) {
  if (pass.deferred)
    fail("offload: gradients go home behind their layer: weight gradients cannot be deferred");
  turn_to({layer, LayerTurn::Backward}, pass.training);
  for (const std::size_t unit : layers_[layer].reads) {
    const std::int64_t count = store().layout().units()[unit].range.count();
    store().bind_grads(
        unit, Tensor({count}, grads_.dtype(), rank().device, Purpose::Gradients));  // (padded)
  }
}

void HostWeights::after_backward(std::size_t layer, const Pass& /*pass*/) {
  for (const std::size_t unit : layers_[layer].reads) send_home(unit);
}

// One layer's gradients are on their way while the layer below computes: those of the layer above
// have arrived by then.
void HostWeights::send_home(std::size_t unit) {
  land();
  store().complete_grads(unit);
  Tensor slice = store().unbind_grads(unit);
  const Range place = own(unit);
  const int ranks = rank().world.size();
  if (ranks > 1) {
    Tensor sum({place.count()}, grads_.dtype(), rank().device, Purpose::Gradients);
    rank().world.reduce_scatter(slice, sum).wait();  // comm: a slice's sum to each rank
    slice = std::move(sum);
  }
  // LAB 02.3: and home again
  // The first contribution of a step is copied to its place on the host, going_.place. Where
  // that has one already (written_) the next is copied beside it, to going_.arrived, and land()
  // adds it. The copy runs on Queue::ToHost, and is waited for in land().
  throw NotImplemented("lab 02.3: and home again", __FILE__, __LINE__);
  // END LAB 02.3
  to_host_bytes_ += static_cast<std::int64_t>(going_.slice.bytes());
}

void HostWeights::land() {
  if (!going_.slice) return;
  const auto span = rank().trace.span("communication", "gradients to the host");
  Going arrived = std::exchange(going_, {});
  arrived.copy.wait();
  if (arrived.arrived) ops::add(arrived.place, arrived.place, arrived.arrived);
}

void HostWeights::finish() {
  land();
  release();
  for (std::size_t unit = 0; unit < written_.size(); ++unit)
    if (!written_[unit]) host_->zero(grads_.view().flat(own(unit).begin, own(unit).count()));
}

double HostWeights::norm(const MeshPlace& place) const {
  std::vector<ConstView> mine;
  for (const OptimizerSlice& slice : slices())
    if (counts(*slice.parameter, true, place)) mine.push_back(slice.gradient);
  return norm_of_shards(rank().world, mine);
}

StepParts weights_on_host(StepParts parts, const ResidencyOptions& options) {
  parts.reducer = [options](const Rank& rank, const Model& model, ParameterStore& store) {
    return std::make_unique<HostWeights>(rank, model, store, options);
  };
  parts.divided = true;
  parts.all_values = parts.all_gradients = false;
  return parts;
}

}  // namespace aisc
