// Activations that wait on the host between forward and backward (vDNN, arXiv 1602.08124).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "common/core/work.h"
#include "common/nn/model.h"
#include "common/train/step_parts.h"

namespace aisc {

struct SavedToHostOptions {
  std::int64_t least_bytes = 4096;  // smaller tensors stay: a copy of each costs more than it frees
  bool prefetch = true;             // a layer's come back while the layer above computes
  std::vector<bool> layers = {};    // by layer of the model: whether its move; empty: all
};

// Floating types of so many bytes and more.
bool is_worth_moving(const Tensor& saved, std::int64_t least_bytes);

// What a layer saves goes to the host behind its forward, while the next layer computes, and its
// memory is free when that has run; it comes back in time for the layer's backward. What the layer
// in front of the loss saves stays: its backward is next.
//
// Moved is each storage of a layer once; one that two
// layers save is moved by both, and its memory is free when both are done. Gradients are the same
// bit by bit.
// Over the link: the bytes that layers save, once each way in a micro-batch.
class SavedToHost final : public LayerHook {
 public:
  SavedToHost(const Rank& rank, const Model& model, const SavedToHostOptions& options = {});

  void after_forward(std::size_t layer, const Pass& pass, Saved& saved) override;
  // Throws Error naming the layer if `saved` is not as after_forward left it.
  void before_backward(std::size_t layer, const Pass& pass, Saved& saved) override;

 private:
  // A storage of a layer, and which of its saved tensors have it.
  struct Moved {
    std::vector<std::pair<std::size_t, Shape>> places;  // index in Saved, and the shape there
    Tensor device;  // until it has gone, and from when it comes back
    Tensor host;
    Work copy;
  };
  struct MovedLayer {
    std::size_t saved = 0;  // so many tensors, moved or not
    std::vector<Moved> storages = {};
    enum class Is { Going, Away, Coming } is = Is::Going;
  };
  using Key = std::pair<int, std::size_t>;  // micro-batch and layer

  bool moves(std::size_t layer) const;
  MovedLayer send(std::span<Tensor> saved);  // begins to go
  void leave(MovedLayer& layer) const;       // has gone, if it was going
  void recall(MovedLayer& layer) const;      // begins to come back, unless it does

  const Rank rank_;
  const std::size_t stays_;  // the layer in front of the loss
  const SavedToHostOptions options_;
  Device& host_;
  std::map<Key, MovedLayer> moved_;
};

// For a Trainer.
StepParts activations_on_host(StepParts parts, const SavedToHostOptions& options = {});

}  // namespace aisc
