// Which units' weights a device has during which layer, where the whole model lies elsewhere.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "common/nn/model.h"

namespace aisc {

// The layer that runs next: forward of the first to the last, then, where the pass trains, backward
// of the last to the first. nullopt: the pass is over.
struct LayerTurn {
  enum Direction { Forward, Backward };
  std::size_t layer = 0;
  Direction direction = Forward;
  bool operator==(const LayerTurn&) const = default;
};
std::optional<LayerTurn> next_turn(const LayerTurn& turn, std::size_t layers, bool training);

// What moves before a layer runs, and what it waits for. Units are in the order in which copies are
// asked for.
struct Moves {
  std::vector<std::size_t> evict;   // first: their memory is where the next ones go
  std::vector<std::size_t> fetch;   // the layer's own, then those of the next turn
  std::vector<std::size_t> needed;  // the layer's own, on the device when it runs
};

// vDNN (Rhu et al., arXiv 1602.08124, section III): forward of a layer needs its weights and its
// input, backward in addition the incoming gradient, and nothing of any other layer. `here` are the
// units that are on the device or on their way. With `prefetch` those of the next turn are on their
// way while this layer computes; what neither reads is evicted.
struct ResidencyOptions {
  bool prefetch = true;
};
Moves moves_before(const LayerTurn& turn, std::span<const LayerUnits> layers,
                   const std::vector<bool>& here, bool training, const ResidencyOptions& options);

}  // namespace aisc
