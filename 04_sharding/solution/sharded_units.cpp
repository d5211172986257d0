#include "04_sharding/sharded_units.h"

#include <fmt/format.h>

#include "04_sharding/sharded_norm.h"
#include "common/core/error.h"

namespace aisc {
namespace {

const ShardOptions& validated(const ShardOptions& options) {
  if (options.stage < 1 || options.stage > 3)
    fail(fmt::format("sharding: stage {}, expected 1, 2 or 3", options.stage));
  options.gather.validate();
  return options;
}

}  // namespace

ShardedUnits::ShardedUnits(const Rank& rank, const Model& model, ParameterStore& store,
                           const ShardOptions& options)
    : Reducer(rank, store),
      options_(validated(options)),
      layers_(layer_units(model, store.units())),
      pieces_(shard_pieces(store.units(), store.layout(), rank.world.rank(), rank.world.size())),
      gradients_(rank, store, {.frees = options.stage > 1, .bucket = options.bucket}) {
  if (options.stage < 3) return;
  shards_.emplace(rank, store);
  weights_.emplace(rank, store, *shards_,
                   GatheredWeights::plan_of(layers_, store.layout(), options.gather));
}

std::vector<OptimizerSlice> ShardedUnits::slices() const {
  std::vector<OptimizerSlice> slices;
  for (const ShardPiece& piece : pieces_) {
    const View weight = shards_ ? shards_->shards().flat(piece.in_shards, piece.count)
                                : store().values().flat(piece.in_model, piece.count);
    const View gradient = options_.stage > 1
                              ? gradients_.shards().flat(piece.in_shards, piece.count)
                              : store().grads().flat(piece.in_model, piece.count);
    slices.push_back(slice_of(piece, weight, gradient));
  }
  return slices;
}

void ShardedUnits::before_forward(std::size_t layer, const Pass& pass) {
  if (weights_) weights_->turn_to(layer, {.training = pass.training});
}

void ShardedUnits::after_forward(std::size_t layer, const Pass& pass, Saved& /*saved*/) {
  if (weights_ && !pass.training && layer + 1 == layers_.size()) weights_->release();
}

void ShardedUnits::before_backward(std::size_t layer, const Pass& pass, Saved& /*saved*/) {
  if (options_.stage > 1 && pass.deferred)
    fail(fmt::format(
        "sharding: stage {} frees gradients behind a layer: weight gradients cannot be deferred",
        options_.stage));
  if (layer + 1 == layers_.size()) gradients_.finish();  // of the micro-batch before: its memory
  if (weights_) weights_->turn_to(layer, {.backward = true});
  for (const std::size_t unit : layers_[layer].reads) gradients_.bind(unit);
}

// Where gradients are freed, each micro-batch's are scattered.
void ShardedUnits::after_backward(std::size_t layer, const Pass& /*pass*/) {
  if (options_.stage == 1) return;
  for (const std::size_t unit : layers_[layer].completes) gradients_.scatter(unit);
}

void ShardedUnits::complete(std::size_t layer) {
  if (options_.stage > 1) return;
  for (const std::size_t unit : layers_[layer].completes) gradients_.scatter(unit);
}

void ShardedUnits::finish() {
  gradients_.finish();
  if (weights_) weights_->release();
}

double ShardedUnits::norm(const MeshPlace& place) const {
  return norm_of_shards(rank().world, slices(), place);
}

void ShardedUnits::take_slices() {
  if (!weights_) return gather_updated(rank(), store());
  const auto span = rank().trace.span("communication", "updated weights");
  weights_->take_parts();
}

void gather_updated(const Rank& rank, ParameterStore& store) {
  const auto span = rank.trace.span("communication", "updated weights");
  std::vector<Work> gathers;
  for (std::size_t unit = 0; unit < store.units().size(); ++unit) {
    const View whole = store.values(unit);
    const std::int64_t part = whole.count() / rank.world.size();
    gathers.push_back(rank.world.all_gather(  // comm: updated weights, a shard from each rank
        whole.flat(rank.world.rank() * part, part), whole));
  }
  for (Work& gather : gathers) gather.wait();
}

StepParts sharded(const ShardOptions& options) {
  return {.reducer =
              [options](const Rank& rank, const Model& model, ParameterStore& store) {
                return std::make_unique<ShardedUnits>(rank, model, store, options);
              },
          .divided = true,
          .all_values = options.stage < 3,
          .all_gradients = options.stage < 2};
}

Sharded shard(const Rank& rank, const Model& model, int stage, const ShardOptions& options,
              std::uint64_t seed, const StoreTypes& types) {
  ShardOptions chosen = options;
  chosen.stage = stage;
  Sharded result;
  result.store =
      std::make_unique<ParameterStore>(rank.device, make_units(model),
                                       ParameterStore::Options{.value_dtype = types.values,
                                                               .grad_dtype = types.gradients,
                                                               .ranks = rank.world.size(),
                                                               .values = stage < 3,
                                                               .gradients = stage < 2});
  result.units = std::make_unique<ShardedUnits>(rank, model, *result.store, chosen);
  for (const OptimizerSlice& slice : result.units->slices())
    draw(slice.weight, *slice.parameter, slice.begin, seed);
  result.units->take_slices();
  return result;
}

}  // namespace aisc
