// Layered gradient accumulation (Lamy-Poirier, "Layered gradient accumulation and modular pipeline
// parallelism", 2021, section 3): all micro-batches pass a layer before the next one's turn.
#pragma once

#include "common/train/step_parts.h"

namespace aisc {

// A MicroBatchLoop for Trainer. Forward takes all micro-batches through layer 0, then all through
// layer 1; at the last layer each goes forward, through the loss and back before the next, so that
// the logits of one are there at a time; backward takes all through a layer before the layer below.
// So a layer's gradients are final after its last micro-batch, while all layers below have theirs
// still to do: the time in which they can be sent is m times that of the plain loop. The price:
// activations of all micro-batches are there at once.
//
// Micro-batches keep their order in each layer, so gradients are bitwise those of the plain loop,
// except of what two layers use (the tied table). Hooks see each layer m times; `complete` comes
// once.
double layered(const Rank& rank, const Model& model, std::int64_t count, const ReadMicroBatch& read,
               double loss_factor, Hooks hooks);

}  // namespace aisc
