#include "12_encoders/bert_rows.h"

#include <fmt/format.h>

#include <utility>

#include "06_tensor_parallel/f_and_g.h"
#include "12_encoders/erf_gelu.h"
#include "common/core/error.h"
#include "common/nn/layer_norm.h"
#include "common/nn/linear.h"
#include "common/nn/sequence.h"

namespace aisc {
namespace {

// Rows begin .. end of x, as a tensor of their own.
Tensor copied_rows(const Tensor& x, std::int64_t begin, std::int64_t end) {
  Tensor rows({end - begin, x.shape()[1]}, x.dtype(), x.device());
  x.device().copy(rows, x.rows(begin, end));
  return rows;
}

// `a` (M, C) above `b` (N, C), which may be empty.
Tensor one_above_the_other(Tensor a, Tensor b) {
  if (!b) return a;
  const std::int64_t M = a.shape()[0], N = b.shape()[0];
  Tensor both({M + N, a.shape()[1]}, a.dtype(), a.device());
  a.device().copy(both.rows(0, M), a);
  b.device().copy(both.rows(M, M + N), b);
  return both;
}

}  // namespace

// tanh(x) = 2 s - 1 with s = sigmoid(2 x), in the type of statistics: near 0 the difference would
// lose what a short type has.
Tensor Tanh::forward(Tensor x, Saved& saved, const Pass& /*pass*/) const {
  const auto span = rank_.trace.span("tanh", name_);
  const std::int64_t C = x.shape()[-1];
  const DType statistics = statistics_of(x.dtype());
  Tensor s(x.shape(), statistics, x.device()), y(x.shape(), statistics, x.device());
  ops::cast(s, x);
  ops::scale(s, s, 2);
  ops::sigmoid(s, s);
  ops::scale(y, s, 2);
  const Tensor minus_one({C}, statistics, x.device());
  ops::fill(minus_one, -1);
  ops::add_bias(as_rows(y), as_rows(y), minus_one);
  ops::cast(x = output_like(x), y);
  saved.push(std::move(s));
  return x;
}

// tanh' = 1 - tanh^2 = 4 s (1 - s).
Tensor Tanh::backward(Tensor dy, Saved& saved, const Pass& /*pass*/) {
  const auto span = rank_.trace.span("tanh", name_);
  const Tensor s = saved.pop();
  const Tensor ds(dy.shape(), s.dtype(), dy.device());
  ops::cast(ds, dy);
  ops::sigmoid_backward(ds, ds, s);
  ops::scale(ds, ds, 4);
  Tensor dx = output_like(dy);
  ops::cast(dx, ds);
  return dx;
}

std::unique_ptr<Layer> make_pooler(const Rank& rank, std::int64_t width) {
  return in_sequence(rank, "pooler", std::make_unique<Linear>(rank, "pooler", width, width),
                     std::make_unique<Tanh>(rank, "pooler.tanh"));
}

// The table is x of all token ranks and the row that is nowhere.
ops::TablePart PickedRows::rows_here(std::int64_t rows) const {
  const std::int64_t rank = token_ranks_ ? token_ranks_->rank() : 0;
  return {.begin = rank * rows, .all = ranks() * rows + 1};
}

Tensor PickedRows::forward(const Tensor& x, ConstView places) const {
  Tensor y({places.count(), x.shape()[-1]}, x.dtype(), x.device());  // (N, C)
  ops::embedding(y, as_rows(x), places, ops::Into::Overwrite, rows_here(x.shape().rows()));
  if (!token_ranks_) return y;
  Passing all = begin_through(Conjugate::G, Direction::Forward, *token_ranks_,
                              std::move(y));  // comm: y; one rank has a place's row, others 0
  return wait_for(rank_, std::move(all), "rows");
}

// All ranks have the same dy, of all rows: each takes what is its own.
void PickedRows::backward(View dx, const Tensor& dy, ConstView places) const {
  const std::int64_t rows = dx.shape().rows();
  ops::embedding_backward(dx.reshaped({rows, dy.shape()[1]}), dy, places, ops::Into::Overwrite,
                          rows_here(rows));
}

BertRows::BertRows(const Rank& rank, std::int64_t width, double epsilon, Communicator* token_ranks)
    : Layer(rank, "rows"),
      picked_(rank, token_ranks),
      pooler_(make_pooler(rank, width)),
      words_(in_sequence(rank, "transform",
                         std::make_unique<Linear>(rank, "transform", width, width),
                         std::make_unique<ErfGelu>(rank, "transform.gelu"),
                         std::make_unique<LayerNorm>(rank, "transform_norm", width, epsilon))) {}

Tensor picked_places(const Pass& pass, std::int64_t samples, std::int64_t tokens, Device& device) {
  const std::int64_t N = pass.picked ? pass.picked.count() : samples;
  Tensor places({N}, DType::I32, device);
  if (pass.picked) {
    device.copy(places, pass.picked);
    return places;
  }
  std::vector<std::int32_t> first;
  for (std::int64_t b = 0; b < samples; ++b) first.push_back(static_cast<std::int32_t>(b * tokens));
  CpuDevice host;
  device.copy(places, ConstView(first.data(), {N}, DType::I32, host));
  return places;
}

Tensor BertRows::forward(Tensor x, Saved& saved, const Pass& pass) const {
  const auto span = rank_.trace.span("rows", name_);
  const std::int64_t B = x.shape()[0];
  Tensor places = picked_places(pass, B, x.shape()[1] * picked_.ranks(), x.device());
  const std::int64_t N = places.count();
  if (N < B)
    fail(fmt::format("rows: {} places are picked of {} samples, expected one or more of each", N,
                     B));
  const Tensor rows = picked_.forward(x, places);  // (N, C)
  Tensor pooled = pooler_->forward(copied_rows(rows, 0, B), saved, pass), words;
  if (B < N) words = words_->forward(copied_rows(rows, B, N), saved, pass);
  // Of x its shape is kept, and no element.
  saved.push(Tensor(x.shape().with(-1, 0), x.dtype(), x.device()));
  saved.push(std::move(places));
  return one_above_the_other(std::move(pooled), std::move(words));
}

Tensor BertRows::backward(Tensor dy, Saved& saved, const Pass& pass) {
  const auto span = rank_.trace.span("rows", name_);
  const Tensor places = saved.pop(), shaped = saved.pop();
  const std::int64_t B = shaped.shape()[0], N = dy.shape()[0], C = dy.shape()[1];
  Tensor words;
  if (B < N) words = words_->backward(copied_rows(dy, B, N), saved, pass);
  Tensor pooled = pooler_->backward(copied_rows(dy, 0, B), saved, pass);
  Tensor dx(shaped.shape().with(-1, C), dy.dtype(), dy.device());  // (B, T, C)
  picked_.backward(dx, one_above_the_other(std::move(pooled), std::move(words)), places);
  return dx;
}

std::vector<Parameter*> BertRows::parameters() {
  return joined(pooler_->parameters(), words_->parameters());
}

}  // namespace aisc
