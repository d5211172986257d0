// ZeRO's three stages, and FSDP, as a hook around the layers (Rajbhandari et al., "ZeRO: memory
// optimizations toward training trillion parameter models", SC 2020, section 5; Zhao et al.,
// "PyTorch FSDP", VLDB 2023); over all ranks, or within groups of them that hold copies (Zhang et
// al., "MiCS: near-linear scaling for training gigantic model on public cloud", VLDB 2022; FSDP's
// HYBRID_SHARD).
#pragma once

#include <memory>
#include <optional>

#include "04_sharding/gathered_weights.h"
#include "04_sharding/scattered_gradients.h"
#include "04_sharding/shards.h"
#include "common/train/step_parts.h"

namespace aisc {

struct ShardOptions {
  // What a rank keeps of a model of Psi parameters between two steps, with N ranks, beside its
  // optimizer's Psi/N: 1: all weights and gradients; 2: all weights, a shard of the gradients; 3: a
  // shard of both.
  int stage = 3;
  GatherOptions gather = {};  // of stage 3
  std::int64_t bucket = 0;    // ScatteredGradients::Options, in elements
  // So many ranks, neighbours, divide the model among themselves, a node's say; the other groups
  // have the same. 0: all ranks are one group.
  int group = 0;
};

// Each rank updates its shard of every unit. A step sends, per rank and with m micro-batches, in
// elements times (N - 1)/N:
//   stage 1   2 Psi        gradients scattered once, updated weights gathered
//   stage 2   (m + 1) Psi  gradients scattered in each micro-batch
//   stage 3   3 m Psi      weights gathered for forward and again for backward, gradients
//                          scattered; less where units stay (GatherOptions); a tied table once
//                          more, for the head
// In groups of g ranks N is g in all of that, in memory and in what is sent within the group. Once
// a step the groups' sums of each shard become one: across the N/g ranks that have the same shard a
// rank sends
//   2 Psi/g (N/g - 1)/(N/g)
// elements more, unit by unit while backward of the last micro-batch goes on. With g = N that is 0,
// with g = 1 it is plain data parallelism.
class ShardedUnits final : public Reducer {
 public:
  // A store padded for the ranks of a group, without memory for gradients from stage 2 on and for
  // values in stage 3. Collective where there are groups. Throws Error for another stage than 1, 2
  // or 3, for groups that do not divide rank.world, and as GatherOptions, gather_schedule and
  // ScatteredGradients do.
  ShardedUnits(const Rank& rank, const Model& model, ParameterStore& store,
               const ShardOptions& options);

  std::vector<OptimizerSlice> slices() const override;
  bool divides() const override { return true; }
  Groups groups() const override { return {within_.get(), across_.get()}; }
  bool joins_forward() const override { return options_.stage == 3; }

  void begin() override;
  void before_forward(std::size_t layer, const Pass& pass) override;
  void after_forward(std::size_t layer, const Pass& pass, Saved& saved) override;
  void before_backward(std::size_t layer, const Pass& pass, Saved& saved) override;
  void after_backward(std::size_t layer, const Pass& pass) override;
  void complete(std::size_t layer) override;
  void finish() override;
  double norm(const MeshPlace& place) const override;
  void updated() override { take_slices(); }
  void take_slices() override;

 private:
  // The sum of a unit's gradients within the group.
  void scatter(std::size_t unit);
  // Launches the sums across groups of units whose sum within this one is over.
  void sum_across();

  const ShardOptions options_;
  const std::unique_ptr<Communicator> within_, across_;  // null: all ranks are one group
  const Rank group_;                                     // this rank in its group
  const std::vector<LayerUnits> layers_;
  const std::vector<ShardPiece> pieces_;
  std::optional<SlicedWeights> shards_;  // of stage 3
  std::optional<GatheredWeights> weights_;
  ScatteredGradients gradients_;
  // Of a step, where there are groups: final units that are not summed across them yet, the unit
  // whose sum within the group may be under way, and the sums across groups that are.
  std::vector<std::size_t> waiting_;
  std::optional<std::size_t> scattered_;
  std::vector<Work> sums_;
};

// Each rank has updated its slice of every unit of a store with memory for all values: now all of
// rank.world have all. Collective.
void gather_updated(const Rank& rank, ParameterStore& store);

// For a Trainer.
StepParts sharded(const ShardOptions& options);

// The same in one call, for any model and loop: the store and the hook that a step needs. The model
// is drawn from `seed`, shard by shard, and must outlive both.
//
//   Sharded s = shard(rank, model, 3);
//   AdamW adamw(s.units->slices(), {});
//   s.units->begin();
//   LayerHook* const hooks[] = {s.units.get()};
//   forward_backward(model, tokens, targets, pass, factor, hooks);
//   s.units->finish();
//   adamw.step({.learning_rate = 1e-3});
//   s.units->updated();
struct Sharded {
  std::unique_ptr<ParameterStore> store;
  std::unique_ptr<ShardedUnits> units;
};
struct StoreTypes {
  DType values = DType::F32, gradients = DType::F32;
};
Sharded shard(const Rank& rank, const Model& model, int stage, const ShardOptions& options = {},
              std::uint64_t seed = 1, const StoreTypes& types = {});

}  // namespace aisc
