// The loop over the layers: one micro-batch forward and backward on one rank. What later modules
// add to it (buckets, sharding, offload, traces) is a hook; what repeats it (pipelines) calls its
// halves.
#pragma once

#include <utility>

#include "common/nn/key_value_cache.h"
#include "common/nn/model.h"

namespace aisc {

// One layer and its hooks (model.h says when they are called): what every loop over layers is made
// of. `complete_layer` comes once a step, behind the layer's last backward.
Tensor forward_layer(const Model& model, std::size_t layer, Tensor x, Saved& saved,
                     const Pass& pass, Hooks hooks);
Tensor backward_layer(const Model& model, std::size_t layer, Tensor dy, Saved& saved,
                      const Pass& pass, Hooks hooks);
void complete_layer(std::size_t layer, Hooks hooks);

// x through these layers, each of which remembers in its own `saved` (one a layer) what its
// backward needs; and dy back through them, which adds to the gradients of their parameters.
Tensor forward_layers(const Model& model, const LayerRange& layers, Tensor x,
                      std::span<Saved> saved, const Pass& pass, Hooks hooks = {});
Tensor backward_layers(const Model& model, const LayerRange& layers, Tensor dy,
                       std::span<Saved> saved, const Pass& pass, Hooks hooks = {});
// The same through all layers.
inline Tensor forward_layers(const Model& model, Tensor x, std::span<Saved> saved, const Pass& pass,
                             Hooks hooks = {}) {
  return forward_layers(model, model.all_layers(), std::move(x), saved, pass, hooks);
}
inline Tensor backward_layers(const Model& model, Tensor dy, std::span<Saved> saved,
                              const Pass& pass, Hooks hooks = {}) {
  return backward_layers(model, model.all_layers(), std::move(dy), saved, pass, hooks);
}

// Runs tokens, targets (B, T) I32 forward and backward and returns the sum of the losses in nats.
// The gradients of loss_factor * that sum are added to the parameters' grads.
double forward_backward(const Model& model, const Tensor& tokens, const Tensor& targets,
                        const Pass& pass, double loss_factor, Hooks hooks = {});

// The logits (B, T, table_rows) of tokens (B, T); nothing is kept, dropout is off.
Tensor forward(const Model& model, const Tensor& tokens, Hooks hooks = {},
               const Pass& pass = {.training = false});

// The same for a sequence that grows: tokens (B, T), the next T of it, follow those in the cache
// and are added to it. Returns the logits (B, table_rows) of the last position only: a prompt's
// others are not asked for, and the head, the last layer, is the largest product. Throws Error for
// no tokens, for more than the model's context or the cache have room for, and for another model's
// cache.
Tensor forward_cached(const Model& model, const Tensor& tokens, KeyValueCache& cache,
                      Hooks hooks = {});
// The same through some layers, a stage of a pipeline, of tokens or of what the stage before
// returned: (B, T, C), or the logits where the layers end with the head, that of a model with a
// loss. The cache is shared by a rank's stages, and the caller advances it behind the last of them.
Tensor forward_cached(const Model& model, const LayerRange& layers, Tensor x, KeyValueCache& cache,
                      Hooks hooks = {});

// The sum of the losses, without gradients.
double evaluate(const Model& model, const Tensor& tokens, const Tensor& targets, Hooks hooks = {},
                const Pass& pass = {.training = false});

}  // namespace aisc
