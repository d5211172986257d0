#include "07_sequence_parallel/ring_self_attention.h"

#include <cmath>

#include "06_tensor_parallel/linear_products.h"
#include "07_sequence_parallel/head_matrices.h"

namespace aisc {
namespace {

// A product has the keys of one rank, a softmax those of all. Scores of `queries` queries of all
// heads, (.., N t), row by row -> (N, B H, t, t): those of one rank's keys are matrices. As
// workspace.
Tensor by_ranks(const Tensor& rows, std::int64_t ranks, std::int64_t queries) {
  const std::int64_t all = rows.count() / (ranks * queries);  // B H t
  Tensor blocks({ranks, all / queries, queries, queries}, rows.dtype(), rows.device(),
                Purpose::Workspace);
  ops::permute(blocks.view().reshaped({ranks, all, queries}),
               rows.view().reshaped({all, ranks, queries}), {1, 0, 2});
  return blocks;
}
// Back, (B, H, t, N t).
Tensor by_rows(const Tensor& blocks, std::int64_t heads) {
  const std::int64_t ranks = blocks.shape()[0], matrices = blocks.shape()[1];
  const std::int64_t queries = blocks.shape()[2], all = matrices * queries;
  Tensor rows({matrices / heads, heads, queries, ranks * queries}, blocks.dtype(), blocks.device());
  ops::permute(rows.view().reshaped({all, ranks, queries}),
               blocks.view().reshaped({ranks, all, queries}), {1, 0, 2});
  return rows;
}
// Of by_ranks() the scores of rank j's keys, (B H, t, t).
View of_rank(const Tensor& blocks, int j) {
  const Shape& shape = blocks.shape();
  return blocks.rows(j, j + 1).reshaped({shape[1], shape[2], shape[3]});
}

}  // namespace

// The queries of a head follow each other in the whole as they do here.
std::vector<Dropout::Run> QueryDropout::runs(const Tensor& x, const Pass& pass) const {
  std::vector<Run> all;
  const std::int64_t B = x.shape()[0], H = heads_, T = pass.sequence;
  const std::int64_t of_a_head = x.shape()[-1] / H;  // t T
  for (std::int64_t b = 0; b < B; ++b)
    for (std::int64_t h = 0; h < H; ++h)
      all.push_back({(b * H + h) * of_a_head, of_a_head,
                     first_index(pass.first_sample + b, 0, H * T * T) +
                         static_cast<std::uint64_t>((h * T + pass.tokens.position(0)) * T)});
  return all;
}

void RingSelfAttention::go_round(ConstView x, const Pass& pass, const Product& product) const {
  Tensor arrived;  // owns x behind turn 0
  for (int turn = 0; turn < ring_.size(); ++turn) {
    KeyRing::Coming next;
    if (turn + 1 < ring_.size()) next = ring_.pass_on(x, turn + 1, pass);
    product(ring_.origin(turn), x);
    if (turn + 1 < ring_.size()) {
      ring_.wait_for(next.arrival);
      arrived = std::move(next.x);
      x = arrived;
    }
  }
}

Tensor RingSelfAttention::forward(Tensor qkv, Saved& saved, const Pass& pass) const {
  if (pass.cache) return whole_->forward(std::move(qkv), saved, pass);
  const auto span = rank_.trace.span("attention", name_);
  const std::int64_t t = even_share(cp_, name_, "tokens", pass.sequence), T = pass.sequence;
  const std::int64_t B = qkv.shape()[0], H = heads_, D = qkv.shape()[2] / H / 3;
  const Tensor parts = by_heads(qkv, H);  // (3, B H, t, D)
  qkv = {};
  const auto scores_of = [&] {
    const Tensor blocks({ring_.size(), B * H, t, t}, parts.dtype(), parts.device(),
                        Purpose::Workspace);
    go_round(part(parts, 1), pass, [&](int j, ConstView keys) {
      ops::matmul(of_rank(blocks, j), part(parts, 0), keys, {.transpose = ops::Transpose::Second});
    });
    return by_rows(blocks, H);
  };
  Tensor scores = scores_of();  // (B, H, t, T)
  ops::masked_softmax(
      scores, scores, 1 / std::sqrt(static_cast<double>(D)),
      {.causal = sees_ == Sees::Earlier, .queries = pass.tokens, .key_lengths = pass.key_lengths});
  saved.push(scores.share());
  Tensor dropped = dropout_->forward(std::move(scores).reshaped({B, 1, H * t * T}), saved, pass);
  const Tensor heads = Tensor::zeros({B * H, t, D}, statistics_of(parts.dtype()), parts.device(),
                                     Purpose::Workspace);
  {
    const Tensor blocks = by_ranks(dropped, ring_.size(), t);
    go_round(part(parts, 2), pass, [&](int j, ConstView values) {
      ops::matmul(heads, of_rank(blocks, j), values, {.into = ops::Into::Accumulate});
    });
  }
  saved.push(parts.share());
  saved.push(std::move(dropped));
  const Tensor rounded({B * H, t, D}, parts.dtype(), parts.device(), Purpose::Workspace);
  ops::cast(rounded, heads);
  return columns_of(rounded, H);
}

// StoredAttention's, with P, dP and dS of one rank's keys in each turn. While values go round, a
// rank adds P^T dout to their gradient and finds dP = dout v^T; while keys do, it adds dS^T q to
// theirs, and dS k to that of its own queries.
Tensor RingSelfAttention::backward(Tensor dout, Saved& saved, const Pass& pass) {
  const auto span = rank_.trace.span("attention", name_);
  Tensor dropped = saved.pop();      // (B, 1, H t T)
  const Tensor parts = saved.pop();  // (3, B H, t, D)
  const std::int64_t H = heads_, t = parts.shape()[2], D = parts.shape()[3];
  const DType sums = statistics_of(parts.dtype());
  const Tensor dheads = matrices_of(dout, H);  // (B H, t, D)
  const Tensor dparts(parts.shape(), parts.dtype(), parts.device());
  Tensor blocks = by_ranks(dropped, ring_.size(), t);  // of P, turn by turn of dP
  const Shape as_dropped = dropped.shape();
  dropped = {};
  ops::cast(part(dparts, 2),
            ring_.sum_round(part(parts, 2), sums, pass, [&](int turn, ConstView v, View dv) {
              const View block = of_rank(blocks, ring_.origin(turn));
              ops::matmul(dv, block, dheads, {.transpose = ops::Transpose::First});
              ops::matmul(block, dheads, v, {.transpose = ops::Transpose::Second});
            }));
  Tensor ds = dropout_->backward(by_rows(blocks, H).reshaped(as_dropped), saved, pass);
  const Tensor p = saved.pop();  // (B, H, t, T)
  ops::softmax_backward(ds.view().reshaped(p.shape()), ds.view().reshaped(p.shape()), p);
  blocks = by_ranks(ds, ring_.size(), t);
  ds = {};
  const double factor = 1 / std::sqrt(static_cast<double>(D));
  const Tensor dq = Tensor::zeros(part(parts, 0).shape(), sums, parts.device(), Purpose::Workspace);
  ops::cast(part(dparts, 1),
            ring_.sum_round(part(parts, 1), sums, pass, [&](int turn, ConstView k, View dk) {
              const View block = of_rank(blocks, ring_.origin(turn));
              ops::matmul(dq, block, k, {.alpha = factor, .into = ops::Into::Accumulate});
              ops::matmul(dk, block, part(parts, 0),
                          {.transpose = ops::Transpose::First, .alpha = factor});
            }));
  ops::cast(part(dparts, 0), dq);
  return by_tokens(dparts, H);
}

}  // namespace aisc
