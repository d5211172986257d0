// Context parallelism: ranks that share every sequence, in all layers.
#pragma once

#include "07_sequence_parallel/token_parts.h"
#include "common/train/step_parts.h"

namespace aisc {

// For a Trainer with config.cp ranks that have parts of each sequence: layers that look at a token
// alone stay as they are, the core of attention is RingAttention, Ulysses or, of Rsa,
// RingSelfAttention in place of stored_attention()'s, which `parts` are then those of. Beside
// tensor parallelism each core has the heads of its tensor rank; `parts` then has the split. The
// Trainer throws Error naming the layer where cp does not divide what the core shares: the heads of
// Ulysses, the context of Rsa.
StepParts context_parallel(ContextForm form, StepParts parts = {});

}  // namespace aisc
