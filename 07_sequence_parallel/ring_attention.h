// Attention of a sequence that lies on several ranks: keys and values go round (Liu, Zaharia,
// Abbeel, "Ring attention with blockwise transformers for near-infinite context", arXiv
// 2310.01889).
#pragma once

#include "07_sequence_parallel/key_ring.h"
#include "common/nn/attention.h"

namespace aisc {

// In place of attention_core() where rank i of `cp` has token_part(form, i, N, T) of every sample,
// Ring or Zigzag. qkv (B, own tokens, 3 C) -> (B, own tokens, C).
//
// Forward: N turns. In turn s a rank attends to the keys and values of rank i - s, while it sends
// them to rank i + 1 and receives those of the next turn; results are merged in F32 (merge.h). What
// no query sees is passed on and not computed. Backward: N turns as well, in which keys, values and
// the sums of their gradients go round; these have one more hop to go home. They are summed in F32
// (F64 for F64). Saved are qkv, the output and a number per token and head: memory grows with the
// own tokens alone. While generating (Pass::cache) every rank has all tokens: CausalCore.
// Bytes sent per rank, of n own tokens, 2 n C elements of keys and values: N - 1 times these
// forward; N - 1 times these and N times as many in F32 backward.
class RingAttention final : public Layer {
 public:
  RingAttention(const Rank& rank, Communicator& cp, const std::string& name, std::int64_t heads,
                ContextForm form, Sees sees = Sees::Earlier)
      : Layer(rank, name),
        ring_(rank, cp, name, form),
        heads_(heads),
        sees_(sees),
        whole_(attention_core(rank, name, heads, sees)) {}

  Tensor forward(Tensor qkv, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dout, Saved& saved, const Pass& pass) override;

 private:
  // Of this rank's queries and the keys of a turn.
  ops::AttentionMask mask_of(int turn, const Pass& pass) const;
  // False: no query of this rank sees a key of that turn.
  bool sees(const ops::AttentionMask& mask, std::int64_t queries, std::int64_t keys) const;

  KeyRing ring_;
  std::int64_t heads_;
  Sees sees_;
  std::unique_ptr<Layer> whole_;
};

}  // namespace aisc
