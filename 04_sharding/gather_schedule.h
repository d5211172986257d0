// Which units' weights are whole on every rank during which layer, when each rank keeps a shard of
// them: a list that is known before the first step.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "common/nn/model.h"

namespace aisc {

// Sizes are elements, over all ranks. In brackets DeepSpeed's names.
struct GatherOptions {
  static constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();

  int prefetch = 1;          // layers ahead whose units are on their way while a layer computes
                             // (stage3_prefetch_bucket_size)
  std::int64_t live = kAll;  // most that is whole at a time (stage3_max_live_parameters)
  std::int64_t reuse = 0;    // a unit stays whole if it is used again within so many elements of
                             // other units (stage3_max_reuse_distance); kAll: from forward to
                             // backward (FSDP's reshard_after_forward=False)
  std::int64_t persist = 0;  // units of at most so many elements are always whole, beside `live`
                             // (stage3_param_persistence_threshold)
  void validate() const;     // throws Error for what is below 0
};

// Turns of the layers: forward of layer t is turn t; backward of layer t, of L, is turn 2 L - 1 -
// t. For each turn the units that are whole while its layer runs: its own first, then in the order
// in which they are used next.
using GatherSchedule = std::vector<std::vector<std::size_t>>;
enum class Turns { Forward, ForwardAndBackward };

// The schedule of layers with so many elements in each unit. Turn by turn, with what the turn
// before left whole:
//   - the layer's own units are there;
//   - then those of the next `prefetch` layers that read any, in their order, until one would lift
//     all that is there above `live`;
//   - of what else was there, what is used again within `reuse` elements, as far as `live` allows:
//     counted are the units, each once, that are used before it, this turn's not among them.
// Units that persist are in none of the lists. Throws Error if a layer's own units are more than
// `live`.
GatherSchedule gather_schedule(std::span<const LayerUnits> layers,
                               std::span<const std::int64_t> counts, const GatherOptions& options,
                               Turns turns);

}  // namespace aisc
