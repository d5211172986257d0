// Attention as it was before its scores were forgotten: what a layer keeps is then what Korthikanti
// et al. count ("Reducing activation recomputation in large transformer models", arXiv 2205.05198,
// section 4.1).
#pragma once

#include "common/nn/attention.h"
#include "common/nn/dropout.h"
#include "common/train/step_parts.h"

namespace aisc {

// In place of attention_core(): qkv (B, T, 3 C), head-major -> (B, T, C), C = H D. Probabilities,
// (B, H, T, T), exist and are dropped out, a thing that CausalCore does not do. Saved are, in bytes
// of 16 bits with s = T, h = C, a = H:
//
//   the queries, keys and values        6 s b h
//   the probabilities                   2 a s^2 b
//   the mask of their dropout           1 a s^2 b
//   the probabilities behind it         2 a s^2 b
//
// and the output, 2 s b h, by the layer behind. Without dropout the last two are nothing. While
// generating (Pass::cache): CausalCore, since what is kept is for backward.
class StoredAttention final : public Layer {
 public:
  // `dropout` takes the probabilities of a sample as one token, (B, 1, H T T), so that HeadDropout
  // drops of the heads of a tensor rank what one rank drops. Its indices count a sample's
  // probabilities: up to 2^32 are drawn apart.
  StoredAttention(const Rank& rank, const std::string& name, std::int64_t heads,
                  std::unique_ptr<Dropout> dropout, Sees sees = Sees::Earlier)
      : Layer(rank, name),
        heads_(heads),
        dropout_(std::move(dropout)),
        sees_(sees),
        whole_(attention_core(rank, name, heads, sees)) {}

  Tensor forward(Tensor qkv, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dout, Saved& saved, const Pass& pass) override;

 private:
  std::int64_t heads_;
  std::unique_ptr<Dropout> dropout_;
  Sees sees_;
  std::unique_ptr<Layer> whole_;
};

// Cores that store their scores, each of its tensor rank's heads, and dropout that stores its
// masks; the ranks of tp, if it is not null, outlive the layers.
GptParts stored_attention_parts(Communicator* tp, GptParts parts = gpt2_parts());

// For a Trainer: cores that store their scores, dropout that stores its masks, a byte an element.
// Beside config.cp: context_parallel(ContextForm::Rsa) around it.
StepParts stored_attention(StepParts parts = {});

}  // namespace aisc
