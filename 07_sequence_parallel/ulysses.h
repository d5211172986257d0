// Attention of a sequence that lies on several ranks: an all-to-all makes of some tokens of all
// heads all tokens of some heads, and another one the opposite (Jacobs et al., "DeepSpeed Ulysses",
// arXiv 2309.14509).
#pragma once

#include "07_sequence_parallel/token_parts.h"
#include "common/nn/attention.h"

namespace aisc {

// In place of attention_core() where rank i of `cp` has the tokens of
// token_part(ContextForm::Ulysses, i, N, T): qkv (B, own tokens, 3 C) -> (B, own tokens, C). N
// divides the heads: more ranks than heads have nothing to share. The attention between is
// attention_core()'s. While generating (Pass::cache) every rank has all tokens, and nothing is
// sent. Bytes sent per rank, of n own tokens of width C: (N-1)/N of 3 n C elements and of n C,
// forward, and the same backward: with T tokens 4 T C / N, the more ranks the less each.
class Ulysses final : public Layer {
 public:
  // Throws Error naming the layer where N does not divide the heads.
  Ulysses(const Rank& rank, Communicator& cp, const std::string& name, std::int64_t heads,
          Sees sees = Sees::Earlier);

  Tensor forward(Tensor qkv, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dout, Saved& saved, const Pass& pass) override;

  // The two exchanges alone: x (B, own tokens, C) -> (B, T, C/N), and back, T = pass.sequence.
  Tensor to_heads(const Tensor& x, const Pass& pass) const;
  Tensor to_tokens(const Tensor& x, const Pass& pass) const;

 private:
  std::vector<std::int64_t> tokens_of_all(const Pass& pass) const;

  Communicator& cp_;
  std::unique_ptr<Layer> some_, whole_;
};

}  // namespace aisc
