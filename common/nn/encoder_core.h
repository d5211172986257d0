// The core of self-attention in an encoder: every token looks at all of its sequence.
#pragma once

#include "common/nn/attention.h"

namespace aisc {

// CausalCore's where every token looks at all of its sequence but the padding (pass.key_lengths).
// What padding itself computes is nobody's key, and no target counts it. Nothing is generated:
// Pass::cache throws Error.
class EncoderCore final : public Layer {
 public:
  EncoderCore(const Rank& rank, std::string name, std::int64_t heads)
      : Layer(rank, std::move(name)), heads_(heads) {}

  Tensor forward(Tensor qkv, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dout, Saved& saved, const Pass& pass) override;

 private:
  std::int64_t heads_;
};

// qkv (B, T, H 3 D) head-major -> (3, B, T, H D): queries, keys and values for ops::attention();
// and back.
Tensor attention_parts(ConstView qkv, std::int64_t heads);
void join_attention_parts(View qkv, ConstView parts, std::int64_t heads);

}  // namespace aisc
