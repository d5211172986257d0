// Keep, recompute or offload: what becomes of what layers save for backward, layer by layer, so
// that a step fits and is quickest.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace aisc {

enum class Saving { Keep, Recompute, Offload };

// A layer of a chain in one micro-batch.
struct LayerCost {
  double forward_seconds = 0, backward_seconds = 0;
  double copy_seconds = 0;               // of what it saves, each way
  std::int64_t saved_bytes = 0;          // by its forward
  std::int64_t input_bytes = 0;          // of its input, which is all that Recompute keeps
  std::int64_t stays_bytes = 0;          // what Offload leaves: small tensors, and indices
  bool recomputes = true, moves = true;  // which choices it has beside Keep
};

struct SavingPlan {
  std::vector<Saving> layers;
  double seconds = 0;           // of forward and backward
  std::int64_t peak_bytes = 0;  // of what is saved, at most
};

// How long a step with these choices takes, and what it holds.
// - Kept costs no time. Recompute (Chen et al., arXiv 1604.06174) runs forward again.
// - Offloaded goes while the next layer's forward runs, and comes while that layer's backward does
//   (SavedToHost): the rank waits for what a copy takes longer. In backward a next layer that
//   recomputes hides more.
// - While a layer computes there are what all layers below keep, all that it saves itself, and
//   what is on its way of the one below.
SavingPlan plan_of(std::span<const LayerCost> layers, std::vector<Saving> choices);

// A quickest of all plans that hold at most `limit_bytes`; nullopt: none fits. Exact: of two chains
// with the same last choice one that keeps more and takes longer cannot become the better one,
// whatever the layers above do, and is dropped.
std::optional<SavingPlan> fastest_within(std::span<const LayerCost> layers,
                                         std::int64_t limit_bytes);

}  // namespace aisc
