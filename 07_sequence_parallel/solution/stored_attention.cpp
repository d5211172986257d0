#include "07_sequence_parallel/stored_attention.h"

#include <cmath>

#include "06_tensor_parallel/head_dropout.h"
#include "07_sequence_parallel/head_matrices.h"

namespace aisc {

Tensor StoredAttention::forward(Tensor qkv, Saved& saved, const Pass& pass) const {
  if (pass.cache) return whole_->forward(std::move(qkv), saved, pass);
  const auto span = rank_.trace.span("attention", name_);
  const std::int64_t B = qkv.shape()[0], T = qkv.shape()[1], H = heads_;
  const std::int64_t D = qkv.shape()[2] / H / 3;
  Tensor parts = by_heads(qkv, H);  // (3, B H, T, D)
  qkv = {};
  const ops::AttentionMask mask{.causal = sees_ == Sees::Earlier,
                                .queries = pass.tokens,
                                .keys = pass.tokens,
                                .key_lengths = pass.key_lengths};
  Tensor scores({B, H, T, T}, parts.dtype(), parts.device());
  const Tensor heads({B * H, T, D}, parts.dtype(), parts.device(), Purpose::Workspace);
  // LAB 07.7: term by term
  // > part(parts, 0), 1 and 2 are queries, keys and values, (B H, T, D). ops::matmul() makes scores
  // > of them, ops::masked_softmax() probabilities, in place; dropout_->forward() takes those as
  // > (B, 1, H T T) and pushes its mask; `heads` is the product with the values. backward(), below,
  // > pops: what does it need, in which order? Nothing else is pushed.
  ops::matmul(scores.view().reshaped({B * H, T, T}), part(parts, 0), part(parts, 1),
              {.transpose = ops::Transpose::Second});
  ops::masked_softmax(scores, scores, 1 / std::sqrt(static_cast<double>(D)), mask);
  saved.push(scores.share());
  Tensor dropped = dropout_->forward(std::move(scores).reshaped({B, 1, H * T * T}), saved, pass);
  ops::matmul(heads, dropped.view().reshaped({B * H, T, T}), part(parts, 2));
  saved.push(std::move(parts));
  saved.push(std::move(dropped));
  // END LAB 07.7
  return columns_of(heads, H);
}

// With P behind its dropout, out = P v:  dv = P^T dout,  dP = dout v^T. Then through dropout and
// softmax to the scores, and from these to q and k.
Tensor StoredAttention::backward(Tensor dout, Saved& saved, const Pass& pass) {
  const auto span = rank_.trace.span("attention", name_);
  Tensor dropped = saved.pop();      // (B, 1, H T T)
  const Tensor parts = saved.pop();  // (3, B H, T, D)
  const std::int64_t B = dout.shape()[0], T = dout.shape()[1], H = heads_, D = parts.shape()[3];
  const Shape matrices{B * H, T, T};
  const Tensor dheads = matrices_of(dout, H);  // (B H, T, D)
  const Tensor dparts(parts.shape(), parts.dtype(), parts.device());
  ops::matmul(part(dparts, 2), dropped.view().reshaped(matrices), dheads,
              {.transpose = ops::Transpose::First});
  dropped = {};
  Tensor dp({B, 1, H * T * T}, parts.dtype(), parts.device());
  ops::matmul(dp.view().reshaped(matrices), dheads, part(parts, 2),
              {.transpose = ops::Transpose::Second});
  dp = dropout_->backward(std::move(dp), saved, pass);
  const Tensor p = saved.pop();  // (B, H, T, T)
  const View ds = dp.view().reshaped(matrices);
  ops::softmax_backward(ds, ds, p.view().reshaped(matrices));
  const double factor = 1 / std::sqrt(static_cast<double>(D));
  ops::matmul(part(dparts, 0), ds, part(parts, 1), {.alpha = factor});
  ops::matmul(part(dparts, 1), ds, part(parts, 0),
              {.transpose = ops::Transpose::First, .alpha = factor});
  return by_tokens(dparts, H);
}

namespace {

std::unique_ptr<Layer> make_core(const GptParts::Wanted& w, Communicator* tp, std::int64_t heads) {
  const std::string name = w.name + ".probabilities";
  const double rate = w.config.dropout;
  const std::uint64_t seed = w.config.seed;
  auto dropout = tp ? std::make_unique<HeadDropout>(w.rank, *tp, name, rate, seed, Masks::Stored)
                    : std::make_unique<Dropout>(w.rank, name, rate, seed, Masks::Stored);
  return std::make_unique<StoredAttention>(w.rank, w.name, heads, std::move(dropout),
                                           w.config.sees(w.block));
}

}  // namespace

GptParts stored_attention_parts(Communicator* tp, GptParts parts) {
  parts.masks = Masks::Stored;
  parts.core = [tp](const GptParts::Wanted& w) {
    return make_core(w, tp, w.config.heads / w.parts.head_parts);
  };
  return parts;
}

StepParts stored_attention(StepParts parts) {
  parts.masks = Masks::Stored;
  parts.core = [](const GptParts::Wanted& w, Mesh* mesh, std::int64_t heads) {
    return make_core(w, mesh ? &mesh->tp() : nullptr, heads);
  };
  return parts;
}

}  // namespace aisc
