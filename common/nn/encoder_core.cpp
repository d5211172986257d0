#include "common/nn/encoder_core.h"

#include <utility>

#include "common/core/error.h"

namespace aisc {

Tensor attention_parts(ConstView qkv, std::int64_t heads) {
  const std::int64_t B = qkv.shape()[0], T = qkv.shape()[1], C = qkv.shape()[2] / 3;
  Tensor parts({3, B, T, C}, qkv.dtype(), qkv.device());
  ops::permute(parts.view().reshaped({3, B * T * heads, C / heads}),
               qkv.reshaped({B * T * heads, 3, C / heads}), {1, 0, 2});
  return parts;
}

void join_attention_parts(View qkv, ConstView parts, std::int64_t heads) {
  const std::int64_t rows = qkv.shape().rows() * heads, D = qkv.shape()[2] / 3 / heads;
  ops::permute(qkv.reshaped({rows, 3, D}), parts.reshaped({3, rows, D}), {1, 0, 2});
}

Tensor EncoderCore::forward(Tensor qkv, Saved& saved, const Pass& pass) const {
  if (pass.cache)
    fail("attention: " + name_ + ": an encoder's tokens see later ones; none can be generated");
  const auto span = rank_.trace.span("attention", name_);
  const std::int64_t B = qkv.shape()[0], T = qkv.shape()[1], C = qkv.shape()[2] / 3;
  Tensor parts = attention_parts(qkv, heads_);  // (3, B, T, C)
  qkv = {};
  Tensor out({B, T, C}, parts.dtype(), parts.device());
  Tensor log_sum_exp({B, heads_, T}, statistics_of(parts.dtype()), parts.device());
  ops::attention(out, log_sum_exp, parts.rows(0, 1).reshaped({B, T, C}), parts.rows(1, 3), heads_,
                 {.causal = false, .key_lengths = pass.key_lengths});
  saved.push(std::move(parts));
  saved.push(out.share());
  saved.push(std::move(log_sum_exp));
  return out;
}

Tensor EncoderCore::backward(Tensor dout, Saved& saved, const Pass& pass) {
  const auto span = rank_.trace.span("attention", name_);
  const Tensor log_sum_exp = saved.pop(), out = saved.pop(), parts = saved.pop();
  const Shape tokens = out.shape();  // (B, T, C)
  const Tensor dparts(parts.shape(), parts.dtype(), parts.device(), Purpose::Workspace);
  ops::attention_backward(dparts.rows(0, 1).reshaped(tokens), dparts.rows(1, 3), dout,
                          parts.rows(0, 1).reshaped(tokens), parts.rows(1, 3), out, log_sum_exp,
                          heads_, {.causal = false, .key_lengths = pass.key_lengths});
  Tensor dqkv(tokens.with(-1, 3 * tokens[2]), parts.dtype(), parts.device());
  join_attention_parts(dqkv, dparts, heads_);
  return dqkv;
}

std::unique_ptr<Layer> attention_core(const Rank& rank, const std::string& name, std::int64_t heads,
                                      Sees sees) {
  if (sees == Sees::Earlier) return std::make_unique<CausalCore>(rank, name, heads);
  return std::make_unique<EncoderCore>(rank, name, heads);
}

}  // namespace aisc
