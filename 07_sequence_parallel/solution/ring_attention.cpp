#include "07_sequence_parallel/ring_attention.h"

#include <limits>

#include "07_sequence_parallel/merge.h"
#include "common/nn/encoder_core.h"

namespace aisc {
namespace {

// The keys and values of attention_parts(), (2, B, T, C), in memory of their own: they travel.
Tensor parts_of_keys(const Tensor& parts) {
  const Shape& shape = parts.shape();
  Tensor kv(shape.with(0, 2), parts.dtype(), parts.device());
  parts.device().copy(kv, parts.rows(1, 3));
  return kv;
}

}  // namespace

ops::AttentionMask RingAttention::mask_of(int turn, const Pass& pass) const {
  return {.causal = sees_ == Sees::Earlier,
          .queries = pass.tokens,
          .keys = ring_.tokens(turn, pass).runs,
          .key_lengths = pass.key_lengths};
}

bool RingAttention::sees(const ops::AttentionMask& mask, std::int64_t queries,
                         std::int64_t keys) const {
  return queries > 0 && mask.seen(queries - 1, keys) > 0;  // the last query sees most
}

Tensor RingAttention::forward(Tensor qkv, Saved& saved, const Pass& pass) const {
  if (pass.cache) return whole_->forward(std::move(qkv), saved, pass);
  const auto span = rank_.trace.span("attention", name_);
  const std::int64_t B = qkv.shape()[0], T = qkv.shape()[1], C = qkv.shape()[2] / 3;
  const DType sums = statistics_of(qkv.dtype());
  const Tensor parts = attention_parts(qkv, heads_);
  const ConstView q = parts.rows(0, 1).reshaped({B, T, C});
  Tensor kv = parts_of_keys(parts);
  Tensor out = Tensor::zeros({B, T, C}, sums, qkv.device());
  Tensor log_sum_exp({B, heads_, T}, sums, qkv.device());
  ops::fill(log_sum_exp, -std::numeric_limits<double>::infinity());
  // Before each turn `out` is the attention to the keys of the turns before.
  for (int turn = 0; turn < ring_.size(); ++turn) {
    const ops::AttentionMask mask = mask_of(turn, pass);
    // LAB 07.4: a ring of keys
    // > ring_.pass_on(kv, turn, pass) sends kv to the next rank and begins to receive what is used
    // > in that turn: a KeyRing::Coming. `block`, in q's type, and `block_lse` are for
    // > ops::attention(block, block_lse, q, kv, heads_, mask); merge_attention() adds them to out
    // > and log_sum_exp. In which turn is nothing passed on any more, and what may happen while it
    // > is under way? sees() says whether there is anything to compute.
    KeyRing::Coming next;
    if (turn + 1 < ring_.size()) next = ring_.pass_on(kv, turn + 1, pass);
    if (sees(mask, T, kv.shape()[2])) {
      const Tensor block({B, T, C}, qkv.dtype(), qkv.device(), Purpose::Workspace),
          block_lse({B, heads_, T}, sums, qkv.device(), Purpose::Workspace);
      ops::attention(block, block_lse, q, kv, heads_, mask);
      merge_attention(out, log_sum_exp, block, block_lse);
    }
    if (turn + 1 < ring_.size()) {
      ring_.wait_for(next.arrival);
      kv = std::move(next.x);
    }
    // END LAB 07.4
  }
  Tensor result =
      sums == qkv.dtype() ? std::move(out) : Tensor({B, T, C}, qkv.dtype(), qkv.device());
  if (sums != qkv.dtype()) ops::cast(result, out);
  saved.push(std::move(qkv));
  saved.push(result.share());
  saved.push(std::move(log_sum_exp));
  return result;
}

Tensor RingAttention::backward(Tensor dout, Saved& saved, const Pass& pass) {
  const auto span = rank_.trace.span("attention", name_);
  const Tensor log_sum_exp = saved.pop(), out = saved.pop(), qkv = saved.pop();
  const std::int64_t B = qkv.shape()[0], T = qkv.shape()[1], C = qkv.shape()[2] / 3;
  const DType sums = statistics_of(qkv.dtype());
  Tensor parts = attention_parts(qkv, heads_);
  const Tensor q = [&] {
    Tensor own({B, T, C}, qkv.dtype(), qkv.device());
    qkv.device().copy(own, parts.rows(0, 1));
    return own;
  }();
  const Tensor dq = Tensor::zeros({B, T, C}, sums, qkv.device());
  const Tensor own =
      ring_.sum_round(parts.rows(1, 3), sums, pass, [&](int turn, ConstView kv, View dkv) {
        const ops::AttentionMask mask = mask_of(turn, pass);
        ops::fill(dkv, 0);
        if (sees(mask, T, kv.shape()[2]))
          ops::attention_backward(dq, dkv, dout, q, kv, out, log_sum_exp, heads_, mask,
                                  ops::Into::Accumulate);
      });  // (2, B, T, C)
  const std::int64_t n = B * T * C;
  if (sums == qkv.dtype()) {
    qkv.device().copy(parts.view().flat(0, n), dq);
    qkv.device().copy(parts.view().flat(n, 2 * n), own);
  } else {
    ops::cast(parts.view().flat(0, n), dq);
    ops::cast(parts.view().flat(n, 2 * n), own);
  }
  Tensor dqkv({B, T, 3 * C}, parts.dtype(), parts.device());
  join_attention_parts(dqkv, parts, heads_);
  return dqkv;
}

}  // namespace aisc
