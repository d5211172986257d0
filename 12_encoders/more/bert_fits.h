// What of BERT-Base fits on a device when several share it: tensor parallelism divides heads, of
// which there are 12, sequence parallelism divides tokens (Li et al., "Sequence parallelism: long
// sequence training from system perspective", arXiv 2105.13120, figures 3 and 4). Bytes are those
// of a training step that runs without numbers (docs/virtual_time.md).
#pragma once

#include <cstdint>

#include "common/train/train_config.h"

namespace aisc {

// What all the ranks share: each layer (06_tensor_parallel), or each text (07_sequence_parallel).
enum class BertSplit { Tensor, Sequence };
// The core of attention: one that keeps its scores, as in the paper (StoredAttention; of shared
// texts RingSelfAttention), or one that computes them again (EncoderCore, RingAttention).
enum class FitScores { Kept, Again };

struct BertFit {
  BertSplit split = BertSplit::Tensor;
  FitScores scores = FitScores::Kept;
  int ranks = 1;
  std::int64_t samples = 64, tokens = 512;  // of a step
  std::int64_t masked = 0;                  // words of each text; 0: 15 % of its tokens
};

// Whether the ranks divide what they share: the heads, or, where scores are kept, the tokens.
bool can_share(const BertFit& fit);

// 12 blocks, 12 heads, 768 columns, 30,522 words (Devlin et al., arXiv 1810.04805, section 3),
// dropout 0.1, as many positions as tokens; weights and gradients BF16, AdamW with a copy in F32.
TrainConfig bert_base(const BertFit& fit);

// The most that a rank holds at once, where it holds most of all: weights, gradients, AdamW's
// states, activations and workspace of a step in which every text is full. `capacity`: bytes of
// each device; 0: no limit. Throws Error where a rank needs more, and for heads or tokens that the
// ranks do not divide.
std::int64_t step_bytes(const BertFit& fit, double capacity = 0);

// Of a form with so many ranks on devices of `capacity` bytes: the most samples of fit.tokens
// tokens, and the most tokens of fit.samples samples, a multiple of `step`. 0: not even the least.
std::int64_t most_samples(BertFit fit, double capacity);
std::int64_t most_tokens(BertFit fit, double capacity, std::int64_t step);

}  // namespace aisc
