#include "common/nn/embedding.h"

#include <utility>

namespace aisc {

Embedding::Embedding(const Rank& rank, const std::string& name, std::int64_t vocabulary,
                     std::int64_t rows, std::int64_t context, std::int64_t width, DType dtype)
    : rank_(rank),
      dtype_(dtype),
      table_(whole_parameter(name + "wte.weight", {rows, width},
                             Init::normal(0.02, vocabulary * width), true)),
      positions_(whole_parameter(name + "wpe.weight", {context, width}, Init::normal(0.02), true)) {
}

Tensor Embedding::position_ids(const Tensor& tokens, const Pass& pass) const {
  Tensor ids(tokens.shape(), DType::I32, tokens.device());
  ops::token_positions(ids, pass.first_token);
  return ids;
}

Tensor Embedding::forward(Tensor tokens, Saved& saved, const Pass& pass) const {
  const auto span = rank_.trace.span("embedding", table_.name);
  const std::int64_t B = tokens.shape()[0], T = tokens.shape()[1], C = table_.shape[1];
  Tensor x({B, T, C}, dtype_, tokens.device());  // (B, T, C)
  const auto flat = [](const Tensor& ids) { return ids.view().reshaped({ids.count()}); };
  ops::embedding(as_rows(x), table_.value, flat(tokens));
  ops::embedding(as_rows(x), positions_.value, flat(position_ids(tokens, pass)),
                 ops::Into::Accumulate);
  saved.push(std::move(tokens));
  return x;
}

Tensor Embedding::backward(Tensor dy, Saved& saved, const Pass& pass) {
  const auto span = rank_.trace.span("embedding", table_.name);
  const Tensor tokens = saved.pop();
  const auto flat = [](const Tensor& ids) { return ids.view().reshaped({ids.count()}); };
  ops::embedding_backward(table_.grad, as_rows(dy), flat(tokens), table_.next_grad());
  ops::embedding_backward(positions_.grad, as_rows(dy), flat(position_ids(tokens, pass)),
                          positions_.next_grad());
  return Tensor();
}

Tensor TiedHead::forward(Tensor x, Saved& saved, const Pass& /*pass*/) const {
  const auto span = rank_.trace.span("product", "head");
  Tensor logits(x.shape().with(-1, table_.shape[0]), x.dtype(), x.device());  // (B, T, V)
  ops::matmul(as_rows(logits), as_rows(x), table_.value, {.transpose = ops::Transpose::Second});
  saved.push(std::move(x));
  return logits;
}

Tensor TiedHead::backward(Tensor dlogits, Saved& saved, const Pass& pass) {
  const auto span = rank_.trace.span("product", "head");
  Tensor x = saved.pop();                                    // (B, T, C)
  Tensor dx(x.shape(), x.dtype(), x.device());               // (B, T, C)
  ops::matmul(as_rows(dx), as_rows(dlogits), table_.value);  // dx = dlogits table
  weight_grad(pass, table_, std::move(dlogits), std::move(x));
  return dx;
}

}  // namespace aisc
