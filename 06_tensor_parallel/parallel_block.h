// A transformer split over ranks: attention by heads, the MLP by its hidden columns, the table by
// tokens (Shoeybi et al., Megatron-LM, arXiv 1909.08053, section 3).
#pragma once

#include "common/train/step_parts.h"

namespace aisc {

// Two all-reduces forward and two backward a block and micro-batch, of b s h elements each: with
// rings a rank sends 8 b s h (t-1)/t elements (b samples, s tokens, h columns, t ranks). The names
// of the parameters are those of gpt2_parts(), and the parts of each have the values of the whole.
// tp must outlive the layers.

// MLP and attention are (B, T, C) -> (B, T, C), the same on all ranks.
//
// The MLP: a column-parallel layer to the hidden columns, GELU on each rank's own, a row-parallel
// layer back, dropout. Throws Error naming it if t does not divide the 4 C hidden columns.
//
// Attention: rank r has heads r H/t .. (r+1) H/t. Queries, keys and values are head-major,
// (H, 3, D), so that its heads are a run of columns. Between the column-parallel layer and the
// row-parallel one stands the parts' core, of H/t heads. Throws Error naming the attention if t
// does not divide the H heads.

// `parts` with these two, a core of H/t heads, and the vocabulary in parts
// (vocab_parallel_table.h, vocab_parallel_loss.h). Norms, positions and dropout are
// whole on all ranks, and do the same there.
GptParts tensor_parallel_parts(Communicator& tp, GptParts parts = gpt2_parts());

// For a Trainer with config.tp ranks that share each layer.
StepParts tensor_parallel(StepParts parts = {});

}  // namespace aisc
