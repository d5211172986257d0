// The transformer as it was first: an encoder that reads a text, and a decoder that writes another
// one while it looks at it (Vaswani et al., "Attention is all you need", arXiv 1706.03762).
#pragma once

#include "common/train/step_parts.h"

namespace aisc {

struct EncoderDecoderOptions {
  std::int64_t decoder_tokens = 0;  // at most so many: T of Batch::decoder (B, T)
  double smoothing = 0.1;           // of labels (ops::cross_entropy), the paper's
};

// Blocks 0 .. GptConfig::encoder_blocks - 1 are the encoder, of Batch::tokens (B, S), S up to
// GptConfig::context; the others are the decoder, of Batch::decoder. All are post-norm
// (post_norm.h): the encoder's of attention to all tokens and an MLP, the decoder's of causal
// attention, attention to the encoder's output (cross_attention.h) and an MLP. In front of the
// first decoder block, in one layer with it, is the bridge (bridge.h), with an embedding of its
// own; both embeddings have sinusoidal positions. Source and target have one vocabulary, and the
// head shares the encoder's table.
//
// Otherwise than in the paper: the MLPs, which may be experts, have GPT's GELU and not its ReLU,
// and the decoder's embedding has a table of its own, where the paper has one for all three.
// Matrices are drawn as GPT-2's.
//
// Names: wte.weight, decoder.wte.weight; blocks.N with attention.{qkv, project}, norm1; in the
// decoder cross.{q, kv, project}, norm2, mlp.{fc, project} and norm3, in the encoder mlp and norm2.
// The norm of the last block is the layer before the head, and named norm: every model has a layer
// there (GptParts::last), and a second norm behind this one would do nothing.
//
// `mesh` as in StepParts::optimizer. With tensor ranks, labels are smoothed by all classes' scores,
// so each rank has the whole vocabulary; without smoothing it is split as a GPT's. Throws Error for
// tokens that ranks share (sp, cp): source and target would have to be cut alike.
GptParts encoder_decoder_parts(const EncoderDecoderOptions& options, GptParts parts, Mesh* mesh);

// For a Trainer, whose batches have lengths and decoder tokens (padded_batch.h). Throws Error for
// decoder tokens below 1, or a smoothing outside [0, 1); the layers throw one for a model without
// a decoder block.
StepParts encoder_decoder(const EncoderDecoderOptions& options, StepParts parts = {});

}  // namespace aisc
