#include "07_sequence_parallel/token_share.h"

#include <algorithm>
#include <utility>

namespace aisc {

void sum_over_tokens(std::span<Parameter* const> parameters) {
  // LAB 07.2: the sum that is forgotten
  // > Parameter::sync says over which ranks the gradients of a parameter are summed.
  for (Parameter* parameter : parameters) parameter->sync = Sync::DataAndTensor;
  // END LAB 07.2
}

std::unique_ptr<Layer> summed_over_tokens(std::unique_ptr<Layer> layer) {
  sum_over_tokens(layer->parameters());
  return layer;
}

// Goes over the runs of rows that are neighbours in one sample's sequence.
Tensor TokenShareDropout::apply(Tensor x, const Pass& pass) const {
  if (rate_ == 0 || !pass.training) return x;
  const auto span = rank_.trace.span("dropout", name_);
  const Philox random(seed_, name_, pass.step);
  Tensor y = output_like(x);
  const std::int64_t tokens = x.shape()[1] * tp_.size(), width = x.shape()[-1];
  const std::int64_t rows = x.shape()[0] * x.shape()[1], first_row = tp_.rank() * rows;
  for (std::int64_t row = 0, end = 0; row < rows; row = end) {
    const std::int64_t b = (first_row + row) / tokens, t = (first_row + row) % tokens;
    const std::int64_t of_run =
        t < pass.tokens.split ? std::min(pass.tokens.split, tokens) : tokens;
    end = std::min(rows, row + of_run - t);
    const auto first = (static_cast<std::uint64_t>(pass.first_sample + b) << 32) +
                       static_cast<std::uint64_t>(pass.tokens.position(t) * width);
    const std::int64_t at = row * width, count = (end - row) * width;
    ops::dropout(y.view().flat(at, count), x.view().flat(at, count), rate_, random, first);
  }
  return y;
}

Tensor TokenShareDropout::forward(Tensor x, Saved& /*saved*/, const Pass& pass) const {
  return apply(std::move(x), pass);
}

Tensor TokenShareDropout::backward(Tensor dy, Saved& /*saved*/, const Pass& pass) {
  return apply(std::move(dy), pass);
}

Tensor TokenSharePositions::position_ids(const Tensor& x, const Pass& pass) const {
  if (pass.cache) return Positions::position_ids(x, pass);
  const std::int64_t own = x.shape()[0] * x.shape()[1];
  const Shape all_tokens{x.shape()[0], x.shape()[1] * tp_.size()};
  const Tensor all = ids_of(all_tokens, x.device(), pass);  // (B, T)
  Tensor ids({own}, DType::I32, x.device());
  x.device().copy(ids, all.view().flat(tp_.rank() * own, own));
  return ids;
}

}  // namespace aisc
