// Weights of which each rank keeps a part: whole while a layer needs them, and no longer (ZeRO
// stage 3, section 5.3 of the paper; FSDP).
#pragma once

#include <span>
#include <vector>

#include "04_sharding/gather_schedule.h"
#include "common/comm/rank.h"
#include "common/core/work.h"
#include "common/nn/parameter_store.h"

namespace aisc {

// How units are divided over ranks: what a rank has of them always, and what makes one whole.
class DividedWeights {
 public:
  virtual ~DividedWeights() = default;
  // The memory in which all of the unit will be when `arrival` is over. Collective.
  struct Coming {
    Tensor whole;
    Work arrival;
  };
  virtual Coming gather(std::size_t unit) = 0;
};

// Each rank has an equal slice of every unit: of a store that is padded for the ranks of
// rank.world.
class SlicedWeights final : public DividedWeights {
 public:
  SlicedWeights(const Rank& rank, const ParameterStore& store);

  // This rank's shards of all units, one after the other, (layout().count() / ranks) in the type of
  // the store's values.
  View shards() const { return shards_; }
  // Steps: as the all-gather's. Bytes sent per rank: (n - 1)/n of the unit.
  Coming gather(std::size_t unit) override;

 private:
  const Rank rank_;
  const FlatLayout& layout_;
  Tensor shards_;
};

class GatheredWeights {
 public:
  // Of a store without memory for values. `reads` are the units that each layer needs; a schedule
  // has the lists for a pass that trains and one that does not. Units of at most `persist` elements
  // are whole from take_parts() on.
  struct Plan {
    std::vector<std::vector<std::size_t>> reads;  // by layer
    GatherSchedule training, evaluation;
    std::int64_t persist = 0;
  };
  static Plan plan_of(std::span<const LayerUnits> layers, const FlatLayout& layout,
                      const GatherOptions& options);
  // `parts` must outlive it.
  GatheredWeights(const Rank& rank, ParameterStore& store, DividedWeights& parts, Plan plan);

  // Before a layer runs forward or backward: its units become whole, and those that the schedule
  // wants during this turn are on their way. What it does not want is freed first. Collective.
  struct Turn {
    bool backward = false, training = true;
  };
  void turn_to(std::size_t layer, const Turn& turn);
  // Frees all units but those that persist: before the parts change.
  void release();
  // After the parts changed: units that persist become whole again. Collective.
  void take_parts();

  bool is_whole(std::size_t unit) const { return units_[unit].whole; }  // or on its way

 private:
  struct State {
    bool whole = false, persists = false;
    DividedWeights::Coming coming = {};  // until it is waited for
  };
  void gather(std::size_t unit);  // launches it
  void wait_for(std::size_t unit);
  void free(std::size_t unit);

  const Rank rank_;
  ParameterStore& store_;
  DividedWeights& parts_;
  const Plan plan_;
  std::vector<State> units_;
};

}  // namespace aisc
