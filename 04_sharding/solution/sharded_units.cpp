#include "04_sharding/sharded_units.h"

#include <fmt/format.h>

#include "04_sharding/sharded_norm.h"
#include "common/core/error.h"

namespace aisc {
namespace {

const ShardOptions& validated(const ShardOptions& options, int ranks) {
  if (options.stage < 1 || options.stage > 3)
    fail(fmt::format("sharding: stage {}, expected 1, 2 or 3", options.stage));
  if (options.group < 0 || (options.group > 0 && ranks % options.group != 0))
    fail(fmt::format("sharding: groups of {} among {} ranks, expected a divisor of them",
                     options.group, ranks));
  options.gather.validate();
  return options;
}

// By hand, 8 ranks in groups of 4: within are 0 1 2 3 and 4 5 6 7, across 0 4, 1 5, 2 6 and 3 7.
enum class Direction { Within, Across };
std::unique_ptr<Communicator> part_of(Communicator& world, int group, Direction direction) {
  if (group == 0 || group == world.size()) return nullptr;
  const bool within = direction == Direction::Within;
  return world.split(within ? world.rank() / group : world.rank() % group, world.rank(),
                     within ? "shards" : "copies");
}

}  // namespace

ShardedUnits::ShardedUnits(const Rank& rank, const Model& model, ParameterStore& store,
                           const ShardOptions& options)
    : Reducer(rank, store),
      options_(validated(options, rank.world.size())),
      within_(part_of(rank.world, options.group, Direction::Within)),
      across_(part_of(rank.world, options.group, Direction::Across)),
      group_{within_ ? *within_ : rank.world, rank.device, rank.clock, rank.trace},
      layers_(layer_units(model, store.units())),
      pieces_(
          shard_pieces(store.units(), store.layout(), group_.world.rank(), group_.world.size())),
      gradients_(group_, store, {.frees = options.stage > 1, .bucket = options.bucket}) {
  if (options.stage < 3) return;
  shards_.emplace(group_, store);
  weights_.emplace(group_, store, *shards_,
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

// What a backward that threw has left is not of this step.
void ShardedUnits::begin() {
  for (Work& sum : sums_) sum.wait();
  sums_.clear();
  waiting_.clear();
  scattered_.reset();
  gradients_.begin();
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
  for (const std::size_t unit : layers_[layer].completes) scatter(unit);
}

void ShardedUnits::complete(std::size_t layer) {
  for (const std::size_t unit : layers_[layer].completes) {
    if (options_.stage == 1) scatter(unit);
    if (across_) waiting_.push_back(unit);
  }
  sum_across();
}

void ShardedUnits::scatter(std::size_t unit) {
  gradients_.scatter(unit);
  scattered_ = unit;
}

// A scatter waits for the one before: all but the last are over.
void ShardedUnits::sum_across() {
  std::erase_if(waiting_, [this](std::size_t unit) {
    if (scattered_ == unit) return false;
    sums_.push_back(across_->all_reduce(  // comm: a shard's gradients, of the groups that have it
        gradients_.shard(unit)));
    return true;
  });
}

void ShardedUnits::finish() {
  gradients_.finish();
  scattered_.reset();
  sum_across();
  if (weights_) weights_->release();
  const auto span = rank().trace.span("communication", "gradients");
  for (Work& sum : sums_) sum.wait();
  sums_.clear();
}

double ShardedUnits::norm(const MeshPlace& place) const {
  return norm_of_shards(group_.world, slices(), place);
}

void ShardedUnits::take_slices() {
  if (!weights_) return gather_updated(group_, store());
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
          .all_gradients = options.stage < 2,
          .shard_group = options.group};
}

Sharded shard(const Rank& rank, const Model& model, int stage, const ShardOptions& options,
              std::uint64_t seed, const StoreTypes& types) {
  ShardOptions chosen = options;
  chosen.stage = stage;
  const int over = chosen.group > 0 ? chosen.group : rank.world.size();
  Sharded result;
  result.store =
      std::make_unique<ParameterStore>(rank.device, make_units(model),
                                       ParameterStore::Options{.value_dtype = types.values,
                                                               .grad_dtype = types.gradients,
                                                               .ranks = over,
                                                               .values = stage < 3,
                                                               .gradients = stage < 2});
  result.units = std::make_unique<ShardedUnits>(rank, model, *result.store, chosen);
  for (const OptimizerSlice& slice : result.units->slices())
    draw(slice.weight, *slice.parameter, slice.begin, seed);
  result.units->take_slices();
  return result;
}

}  // namespace aisc
