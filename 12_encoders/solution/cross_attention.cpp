#include "12_encoders/cross_attention.h"

#include <utility>

#include "common/core/error.h"
#include "common/nn/sequence.h"

namespace aisc {
namespace {

// kv (B, S, H 2 D) head-major -> (2, B, S, H D): keys and values as ops::attention() has them.
Tensor keys_then_values(const Tensor& kv, std::int64_t heads) {
  const std::int64_t B = kv.shape()[0], S = kv.shape()[1], C = kv.shape()[2] / 2;
  Tensor apart({2, B, S, C}, kv.dtype(), kv.device());
  ops::permute(apart.view().reshaped({2, B * S * heads, C / heads}),
               kv.view().reshaped({B * S * heads, 2, C / heads}), {1, 0, 2});
  return apart;
}

// The way back.
Tensor by_heads(const Tensor& apart, std::int64_t heads) {
  const std::int64_t B = apart.shape()[1], S = apart.shape()[2], C = apart.shape()[3];
  Tensor kv({B, S, 2 * C}, apart.dtype(), apart.device());
  ops::permute(kv.view().reshaped({B * S * heads, 2, C / heads}),
               apart.view().reshaped({2, B * S * heads, C / heads}), {1, 0, 2});
  return kv;
}

}  // namespace

SideInput& side_of(const Pass& pass, const std::string& name) {
  if (!pass.side)
    fail("decoder: " + name + ": a batch without decoder tokens, expected Batch::decoder");
  return *pass.side;
}

CrossAttention::CrossAttention(const Rank& rank, std::string name, std::int64_t heads,
                               std::unique_ptr<Layer> queries, std::unique_ptr<Layer> keys_values,
                               std::unique_ptr<Layer> project)
    : Layer(rank, std::move(name)),
      heads_(heads),
      queries_(std::move(queries)),
      keys_values_(std::move(keys_values)),
      project_(std::move(project)) {}

Tensor CrossAttention::forward(Tensor x, Saved& saved, const Pass& pass) const {
  const SideInput& side = side_of(pass, name_);
  if (!side.value)
    fail("decoder: " + name_ + ": no encoder's output to look at, expected one before it");
  Tensor q = queries_->forward(std::move(x), saved, pass);  // (B, T, H D)
  Tensor kv = keys_then_values(keys_values_->forward(side.value.share(), saved, pass),
                               heads_);          // (2, B, S, H D)
  Tensor out(q.shape(), q.dtype(), q.device());  // (B, T, H D)
  Tensor log_sum_exp({q.shape()[0], heads_, q.shape()[1]}, statistics_of(q.dtype()),
                     q.device());  // (B, H, T)
  {
    const auto span = rank_.trace.span("attention", name_);
    ops::attention(out, log_sum_exp, q, kv, heads_,
                   {.causal = false, .key_lengths = pass.key_lengths});
  }
  saved.push(std::move(q));
  saved.push(std::move(kv));
  saved.push(out.share());
  saved.push(std::move(log_sum_exp));
  return project_->forward(std::move(out), saved, pass);
}

Tensor CrossAttention::backward(Tensor dy, Saved& saved, const Pass& pass) {
  SideInput& side = side_of(pass, name_);
  // LAB 12.3: cross-attention backward
  // > Forward has pushed, in this order: what queries_ and keys_values_ keep, q, kv, out and
  // > log_sum_exp, and what project_ keeps. Go back: each layer's backward(d.., saved, pass) pops
  // > what is its own, and saved.pop() the four in between. ops::attention_backward() fills dq, of
  // > q's shape (B, T, H D), and dkv, of kv's (2, B, S, H D), under the mask of forward;
  // > by_heads(dkv, heads_) has the layout of what keys_values_ returned, (B, S, H 2 D). Two
  // > gradients come out, (B, T, C) and (B, S, C). One is returned. Where does the other go, and
  // > who may have left one there before?
  const Tensor dout = project_->backward(std::move(dy), saved, pass);
  const Tensor log_sum_exp = saved.pop(), out = saved.pop(), kv = saved.pop(), q = saved.pop();
  Tensor dq(q.shape(), q.dtype(), q.device());                                // (B, T, H D)
  const Tensor dkv(kv.shape(), kv.dtype(), kv.device(), Purpose::Workspace);  // (2, B, S, H D)
  {
    const auto span = rank_.trace.span("attention", name_);
    ops::attention_backward(dq, dkv, dout, q, kv, out, log_sum_exp, heads_,
                            {.causal = false, .key_lengths = pass.key_lengths});
  }
  Tensor dvalue = keys_values_->backward(by_heads(dkv, heads_), saved, pass);  // (B, S, C)
  if (side.grad)
    ops::add(side.grad, side.grad, dvalue);
  else
    side.grad = std::move(dvalue);
  return queries_->backward(std::move(dq), saved, pass);
  // END LAB 12.3
}

std::vector<Parameter*> CrossAttention::parameters() {
  return joined(joined(queries_->parameters(), keys_values_->parameters()), project_->parameters());
}

}  // namespace aisc
