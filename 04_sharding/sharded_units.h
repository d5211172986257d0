// ZeRO's three stages, and FSDP, as a hook around the layers (Rajbhandari et al., "ZeRO: memory
// optimizations toward training trillion parameter models", SC 2020, section 5; Zhao et al.,
// "PyTorch FSDP", VLDB 2023).
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
};

// Each rank updates its shard of every unit. A step sends, per rank and with m micro-batches, in
// elements times (N - 1)/N:
//   stage 1   2 Psi        gradients scattered once, updated weights gathered
//   stage 2   (m + 1) Psi  gradients scattered in each micro-batch
//   stage 3   3 m Psi      weights gathered for forward and again for backward, gradients
//                          scattered; less where units stay (GatherOptions); a tied table once
//                          more, for the head
class ShardedUnits final : public Reducer {
 public:
  // A store padded for rank.world, without memory for gradients from stage 2 on and for values in
  // stage 3. Throws Error for another stage than 1, 2 or 3, and as GatherOptions, gather_schedule
  // and ScatteredGradients do.
  ShardedUnits(const Rank& rank, const Model& model, ParameterStore& store,
               const ShardOptions& options);

  std::vector<OptimizerSlice> slices() const override;
  bool divides() const override { return true; }
  bool joins_forward() const override { return options_.stage == 3; }

  void begin() override { gradients_.begin(); }
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
  const ShardOptions options_;
  const std::vector<LayerUnits> layers_;
  const std::vector<ShardPiece> pieces_;
  std::optional<SlicedWeights> shards_;  // of stage 3
  std::optional<GatheredWeights> weights_;
  ScatteredGradients gradients_;
};

// Each rank has updated its slice of every unit of a store with memory for all values: now all have
// all. Collective.
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
