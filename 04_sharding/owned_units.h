// The older way to divide a model: a rank owns whole layers, and sends them to the others when they
// need them. The same weights and as many bytes as with slices, over other links.
#pragma once

#include <vector>

#include "04_sharding/gather_schedule.h"
#include "04_sharding/owners.h"
#include "common/core/work.h"
#include "common/train/step_parts.h"

namespace aisc {

struct OwnerOptions {
  GatherOptions gather = {};
  // How the ranks' gradients of a unit become one. Both leave the same sum with the owner; the
  // others need none, and an all-reduce sends twice the bytes to give them one.
  enum class Sum { ReduceToOwner, AllReduce } sum = Sum::ReduceToOwner;
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

  int owner(std::size_t unit) const { return units_[unit].owner; }

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
  void finish() override { collect(), release(); }
  double norm(const MeshPlace& place) const override;
  void updated() override { take_slices(); }
  void take_slices() override;

 private:
  struct State {
    int owner = 0;
    bool persists = false;
    bool whole = false;   // here, or on its way
    bool summed = false;  // `sum` has one of this step, or it is on its way
    Tensor weights, sum;  // (count): the owner's
    Tensor coming;        // until the broadcast is waited for
    Work broadcast;
  };
  // Gradients of a unit that are being summed, in their place.
  struct Sending {
    Tensor gradients;
    Work work;
    View adds_to;  // the owner's `sum`; empty: they are there already, or another rank's
  };
  bool is_mine(std::size_t unit) const { return owner(unit) == rank().world.rank(); }
  Tensor memory_for(std::size_t unit, Purpose purpose) const;

  void turn_to(std::size_t layer, const std::vector<std::size_t>& wanted);
  void broadcast(std::size_t unit);  // launches it
  void wait_for(std::size_t unit);
  void free(std::size_t unit);
  // Frees all units but these and those that persist.
  void release(const std::vector<std::size_t>& but = {});

  void sum(std::size_t unit);  // launches it, after the one that is under way
  void collect();              // waits for what is under way

  const OwnerOptions::Sum sum_;
  const std::vector<LayerUnits> layers_;
  GatherSchedule training_, evaluation_;
  std::vector<State> units_;
  Sending sending_;
};

// For a Trainer.
StepParts owned(const OwnerOptions& options = {});

}  // namespace aisc
