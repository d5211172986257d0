// BERT: a transformer's encoder that is pre-trained on masked words and pairs of texts (Devlin et
// al., "BERT: pre-training of deep bidirectional transformers", arXiv 1810.04805).
#pragma once

#include "common/train/step_parts.h"

namespace aisc {

struct BertOptions {
  std::int64_t batch = 0;        // samples of the global batch, TrainConfig::batch
  std::int64_t predictions = 0;  // at most so many masked words a sample: K of Batch::picked
  double epsilon = 1e-12;        // of all norms
};

// The parts of a GPT, as they are: whole, split over tp, with tokens shared over it or over cp,
// with experts; and what BERT has in their place. Tokens, positions and segments add up, then a
// norm and dropout; post-norm blocks (post_norm.h) in which every token sees all others but padding
// (GptConfig::encoder_blocks is all of them), MLPs with the exact GELU (erf_gelu.h); behind the
// blocks the picked rows (bert_rows.h), two heads (bert_head.h) and two losses (bert_loss.h). All
// matrices are drawn N(0, .02), also those that end in a residual connection, biases are 0. Experts
// stand where GptConfig::has_experts says, and are those of a GPT.
//
// Names of its parameters: wte.weight, wpe.weight, segments.weight, embedding_norm, blocks.N with
// attention.{qkv, project}, norm1, mlp.{fc, project}, norm2; pooler, transform, transform_norm,
// head.bias, next_sentence. `mesh` as in StepParts::optimizer; the layers are made while it lives,
// and throw Error for a block that sees earlier tokens alone.
GptParts bert_parts(const BertOptions& options, GptParts parts, Mesh* mesh);

// For a Trainer, whose samples give batches with segments, lengths, picked places and targets.
// Throws Error for a batch or predictions below 1.
StepParts bert(const BertOptions& options, StepParts parts = {});

}  // namespace aisc
