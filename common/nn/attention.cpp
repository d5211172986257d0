#include "common/nn/attention.h"

#include <utility>

#include "common/core/error.h"
#include "common/nn/key_value_cache.h"

namespace aisc {

Tensor CausalCore::forward(Tensor qkv, Saved& saved, const Pass& pass) const {
  return pass.cache ? attend_cached(std::move(qkv), pass) : attend(std::move(qkv), saved);
}

// The attention of a whole sequence, and what its backward needs.
Tensor CausalCore::attend(Tensor qkv, Saved& saved) const {
  const auto span = rank_.trace.span("attention", name_);
  const std::int64_t B = qkv.shape()[0], T = qkv.shape()[1], C = qkv.shape()[2] / 3;
  const DType statistics = statistics_of(qkv.dtype());
  Tensor out({B, T, C}, qkv.dtype(), qkv.device());              // (B, T, H*D)
  Tensor log_sum_exp({B, heads_, T}, statistics, qkv.device());  // (B, H, T)
  ops::causal_attention(out, log_sum_exp, qkv, heads_);
  saved.push(std::move(qkv));
  saved.push(out.share());
  saved.push(std::move(log_sum_exp));
  return out;
}

// The attention of tokens that follow those in the cache. Where there are none, the tokens are the
// whole sequence so far, which the tiled operation is faster at.
Tensor CausalCore::attend_cached(Tensor qkv, const Pass& pass) const {
  if (pass.training)
    fail("attention: " + name_ + ": a key-value cache is for generation, and this is training");
  const std::int64_t first = pass.cache->length();
  const View keys_values = pass.cache->layer(name_, qkv, heads_);  // (B, 2H, S, D)
  ops::store_keys_values(keys_values, qkv, heads_, first);
  if (first == 0) {
    Saved nothing = Saved::nothing();
    return attend(std::move(qkv), nothing);
  }
  const auto span = rank_.trace.span("attention", name_);
  Tensor out(qkv.shape().with(-1, qkv.shape()[2] / 3), qkv.dtype(), qkv.device());  // (B, T, H*D)
  ops::cached_attention(out, qkv, keys_values, heads_, first);
  return out;
}

Tensor CausalCore::backward(Tensor dout, Saved& saved, const Pass& /*pass*/) {
  const Tensor log_sum_exp = saved.pop(), out = saved.pop(), qkv = saved.pop();
  Tensor dqkv(qkv.shape(), qkv.dtype(), qkv.device());  // (B, T, H*3*D)
  const auto span = rank_.trace.span("attention", name_);
  ops::causal_attention_backward(dqkv, dout, qkv, out, log_sum_exp, heads_);
  return dqkv;
}

}  // namespace aisc
