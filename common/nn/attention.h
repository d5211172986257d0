// The core of self-attention: every token looks at itself and at the tokens before it, or at all.
// The products around it are layers of their own (gpt.h).
#pragma once

#include <memory>

#include "common/nn/layer.h"

namespace aisc {

// What a query sees of its own sequence: keys up to its own place, or all.
enum class Sees { Earlier, All };

// queries, keys and values (B, T, 3C), head-major (H, 3, D), so that a tensor-parallel shard is a
// slice of columns -> attention(queries, keys, values) (B, T, C). Scores are never stored: saved
// are the input (3C per token), the output (C) and one number per token and head. With pass.cache,
// x is the next tokens of a sequence whose earlier keys and values are in the cache, and theirs are
// added to it; forward then throws Error in training. Keys that are padding (pass.key_lengths) come
// last, where no token before them looks.
class CausalCore final : public Layer {
 public:
  CausalCore(const Rank& rank, std::string name, std::int64_t heads)
      : Layer(rank, std::move(name)), heads_(heads) {}

  Tensor forward(Tensor qkv, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dout, Saved& saved, const Pass& pass) override;

 private:
  Tensor attend(Tensor qkv, Saved& saved) const;
  Tensor attend_cached(Tensor qkv, const Pass& pass) const;

  std::int64_t heads_;
};

// That, or the encoder's (encoder_core.h).
std::unique_ptr<Layer> attention_core(const Rank& rank, const std::string& name, std::int64_t heads,
                                      Sees sees);

}  // namespace aisc
