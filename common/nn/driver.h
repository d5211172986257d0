// The loop over the layers: one micro-batch forward and backward on one rank. Everything that later
// modules do (buckets, sharding, recomputation, pipelines) is another such loop.
#pragma once

#include "common/nn/gpt.h"
#include "common/nn/key_value_cache.h"

namespace aisc {

// Runs tokens, targets (B, T) I32 forward and backward and returns the sum of the losses in nats.
// The gradients of loss_factor * that sum are added to the parameters' grads. Keeps one Saved per
// layer.
double forward_backward(Gpt& model, const Tensor& tokens, const Tensor& targets, const Pass& pass,
                        double loss_factor);

// The logits (B, T, table_rows) of tokens (B, T); nothing is kept, dropout is off.
Tensor forward(const Gpt& model, const Tensor& tokens);

// The same for a sequence that grows: tokens (B, T), the next T of it, follow those in the cache
// and are added to it. Returns the logits (B, table_rows) of the last position only: a prompt's
// others are not asked for, and the head is the largest product. Throws Error for no tokens, for
// more than the model's context or the cache have room for, and for another model's cache.
Tensor forward_cached(const Gpt& model, const Tensor& tokens, KeyValueCache& cache);

// The sum of the losses, without gradients.
double evaluate(const Gpt& model, const Tensor& tokens, const Tensor& targets);

}  // namespace aisc
