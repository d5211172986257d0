#include "common/nn/embedding.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/core/error.h"

namespace aisc {
namespace {

View flat(const Tensor& ids) { return ids.view().reshaped({ids.count()}); }

}  // namespace

Embedding::Embedding(const Rank& rank, Parameter table, DType dtype)
    : Layer(rank, "wte"), dtype_(dtype), table_(std::move(table)) {}

Tensor Embedding::forward(Tensor tokens, Saved& saved, const Pass& /*pass*/) const {
  const auto span = rank_.trace.span("embedding", table_.name);
  const std::int64_t B = tokens.shape()[0], T = tokens.shape()[1], C = table_.shape[1];
  Tensor x({B, T, C}, dtype_, tokens.device());  // (B, T, C)
  ops::embedding(as_rows(x), table_.value(), flat(tokens));
  saved.push(std::move(tokens));
  return x;
}

Tensor Embedding::backward(Tensor dy, Saved& saved, const Pass& /*pass*/) {
  const auto span = rank_.trace.span("embedding", table_.name);
  const Tensor tokens = saved.pop();
  ops::embedding_backward(table_.grad(), as_rows(dy), flat(tokens), table_.next_grad());
  return Tensor();
}

Positions::Positions(const Rank& rank, std::int64_t context, std::int64_t width)
    : Layer(rank, "wpe"),
      positions_(whole_parameter("wpe.weight", {context, width}, Init::normal(0.02), true)) {}

Tensor Positions::ids_of(const Shape& tokens, Device& device, const Pass& pass) const {
  const std::int64_t T = tokens[1], context = positions_.shape[0];
  for (const std::int64_t t :
       {T - 1, std::min(pass.tokens.split, T) - 1})  // here: a GPU says it late
    if (t >= 0 && pass.tokens.position(t) >= context)
      fail(fmt::format("positions: a token at {} of {}", pass.tokens.position(t), context));
  Tensor ids(tokens, DType::I32, device);
  ops::token_positions(ids, pass.tokens);
  return ids;
}

Tensor Positions::position_ids(const Tensor& x, const Pass& pass) const {
  return ids_of({x.shape()[0], x.shape()[1]}, x.device(), pass);
}

Tensor Positions::forward(Tensor x, Saved& /*saved*/, const Pass& pass) const {
  const auto span = rank_.trace.span("embedding", positions_.name);
  if (x.owners() > 1) x = x.clone();
  ops::embedding(as_rows(x), positions_.value(), flat(position_ids(x, pass)),
                 ops::Into::Accumulate);
  return x;
}

Tensor Positions::backward(Tensor dy, Saved& /*saved*/, const Pass& pass) {
  const auto span = rank_.trace.span("embedding", positions_.name);
  ops::embedding_backward(positions_.grad(), as_rows(dy), flat(position_ids(dy, pass)),
                          positions_.next_grad());
  return dy;
}

Tensor TiedHead::forward(Tensor x, Saved& saved, const Pass& /*pass*/) const {
  const auto span = rank_.trace.span("product", "head");
  Tensor logits(x.shape().with(-1, table_.shape[0]), x.dtype(), x.device());  // (B, T, V)
  ops::matmul(as_rows(logits), as_rows(x), table_.value(), {.transpose = ops::Transpose::Second});
  saved.push(std::move(x));
  return logits;
}

Tensor TiedHead::backward(Tensor dlogits, Saved& saved, const Pass& pass) {
  const auto span = rank_.trace.span("product", "head");
  Tensor x = saved.pop();                                      // (B, T, C)
  Tensor dx(x.shape(), x.dtype(), x.device());                 // (B, T, C)
  ops::matmul(as_rows(dx), as_rows(dlogits), table_.value());  // dx = dlogits table
  weight_grad(pass, table_, std::move(dlogits), std::move(x));
  return dx;
}

}  // namespace aisc
