// Weights of which each rank keeps a shard: whole while a layer needs them, and no longer (ZeRO
// stage 3, section 5.3 of the paper; FSDP).
#pragma once

#include <vector>

#include "04_sharding/gather_schedule.h"
#include "common/comm/rank.h"
#include "common/core/work.h"
#include "common/nn/parameter_store.h"

namespace aisc {

class GatheredWeights {
 public:
  // Of a store without memory for values, padded for the ranks of rank.world. `reads` are the units
  // that each layer needs; a schedule has the lists for a pass that trains and one that does not.
  // Units of at most `persist` elements are whole from take_shards() on.
  struct Plan {
    std::vector<std::vector<std::size_t>> reads;  // by layer
    GatherSchedule training, evaluation;
    std::int64_t persist = 0;
  };
  GatheredWeights(const Rank& rank, ParameterStore& store, Plan plan);

  // This rank's shards of all units, one after the other, (layout().count() / ranks) in the type of
  // the store's values: the only weights that it has always.
  View shards() const { return shards_; }

  // Before a layer runs forward or backward: its units become whole, and those that the schedule
  // wants during this turn are on their way. What it does not want is freed first. Collective.
  struct Direction {
    bool backward = false, training = true;
  };
  void turn_to(std::size_t layer, const Direction& direction);
  // Frees all units but those that persist: before the shards change.
  void release();
  // After the shards changed: units that persist become whole again. Collective.
  void take_shards();

  bool is_whole(std::size_t unit) const { return units_[unit].whole; }  // or on its way

 private:
  struct State {
    bool whole = false, persists = false;
    Tensor coming;  // until the gather is waited for
    Work gather;
  };
  void gather(std::size_t unit);  // launches it
  void wait_for(std::size_t unit);
  void free(std::size_t unit);

  const Rank rank_;
  ParameterStore& store_;
  const Plan plan_;
  Tensor shards_;
  std::vector<State> units_;
};

}  // namespace aisc
