// The older way to divide a model: a rank owns whole layers, and sends them to the others when they
// need them. The same weights and as many bytes as with slices, over other links.
#pragma once

#include <vector>

#include "04_sharding/gathered_weights.h"
#include "04_sharding/owners.h"
#include "common/train/step_parts.h"

namespace aisc {

struct OwnerOptions {
  GatherOptions gather = {};
  // How the ranks' gradients of a unit become one. Both leave the same sum with the owner; the
  // others need none, and an all-reduce sends twice the bytes to give them one.
  enum class Sum { ReduceToOwner, AllReduce } sum = Sum::ReduceToOwner;
};

// The owner has a unit, the others have it while a layer needs it.
class OwnedWeights final : public DividedWeights {
 public:
  // Of a store that is padded for one rank.
  OwnedWeights(const Rank& rank, const ParameterStore& store);

  int owner(std::size_t unit) const { return owners_[unit]; }
  View own(std::size_t unit) const { return weights_[unit]; }  // (count); empty: another rank's
  // Steps: as the broadcast's. Bytes sent, of all ranks together: (n - 1) times the unit. The owner
  // sends from its own memory, and computes with it, too.
  Coming gather(std::size_t unit) override;

 private:
  const Rank rank_;
  const ParameterStore& store_;
  std::vector<int> owners_;
  std::vector<Tensor> weights_;
};

// ShardedUnits' stage 3 by whole units: the owner has a unit's weights, sums of gradients and
// optimizer state; the others have its weights while a layer needs them (gather_schedule), and
// their own gradients of it until these have been sent.
//
// With N ranks a unit of S bytes is (N - 1) S bytes for all ranks together, whether it is gathered
// or broadcast, scattered or reduced: a step sends as much as with slices. But slices keep every
// rank's link busy from the beginning, and the ring takes the time of (N - 1)/N S on one link. A
// broadcast begins at the owner alone, and the tree takes ceil(log2 N) S; cut into segments, which
// ranks pass along a chain (module 09), it comes near S. A unit is never cut, so that no padding
// for the ranks is sent; but a rank may own more than its part of the model, and with more ranks
// than units some own nothing.
class Owners final : public Reducer {
 public:
  // A store without memory for values and gradients; padding for one rank is enough. Throws Error
  // as gather_schedule does.
  Owners(const Rank& rank, const Model& model, ParameterStore& store,
         const OwnerOptions& options = {});

  int owner(std::size_t unit) const { return parts_.owner(unit); }

  // The whole parameters of this rank's units.
  std::vector<OptimizerSlice> slices() const override;
  bool divides() const override { return true; }
  bool joins_forward() const override { return true; }

  void begin() override;
  void before_forward(std::size_t layer, const Pass& pass) override;
  void after_forward(std::size_t layer, const Pass& pass, Saved& saved) override;
  // Throws Error where weight gradients are deferred: they would come after they are sent.
  void before_backward(std::size_t layer, const Pass& pass, Saved& saved) override;
  void after_backward(std::size_t layer, const Pass& pass) override;
  void finish() override { collect(), weights_.release(); }
  double norm(const MeshPlace& place) const override;
  void updated() override { take_slices(); }
  void take_slices() override;

 private:
  struct Sum {
    bool begun = false;  // it has one of this step, or it is on its way
    Tensor gradients;    // (count): the owner's
  };
  // Gradients of a unit that are being summed, in their place.
  struct Sending {
    Tensor gradients;
    Work work;
    View adds_to;  // the owner's sum; empty: they are there already, or another rank's
  };
  bool is_mine(std::size_t unit) const { return owner(unit) == rank().world.rank(); }
  Tensor memory_for_gradients(std::size_t unit) const;
  void sum(std::size_t unit);  // launches it, after the one that is under way
  void collect();              // waits for what is under way

  const OwnerOptions::Sum sum_;
  const std::vector<LayerUnits> layers_;
  OwnedWeights parts_;
  GatheredWeights weights_;
  std::vector<Sum> sums_;  // by unit
  Sending sending_;
};

// For a Trainer.
StepParts owned(const OwnerOptions& options = {});

}  // namespace aisc
