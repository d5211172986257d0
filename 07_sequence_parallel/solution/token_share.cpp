#include "07_sequence_parallel/token_share.h"

#include <algorithm>

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

// Runs of rows that are neighbours in one sample's sequence.
std::vector<Dropout::Run> TokenShareDropout::runs(const Tensor& x, const Pass& pass) const {
  std::vector<Run> all;
  const std::int64_t tokens = x.shape()[1] * tp_.size(), width = x.shape()[-1];
  const std::int64_t rows = x.shape()[0] * x.shape()[1], first_row = tp_.rank() * rows;
  for (std::int64_t row = 0, end = 0; row < rows; row = end) {
    const std::int64_t b = (first_row + row) / tokens, t = (first_row + row) % tokens;
    const std::int64_t of_run =
        t < pass.tokens.split ? std::min(pass.tokens.split, tokens) : tokens;
    end = std::min(rows, row + of_run - t);
    all.push_back({.at = row * width,
                   .count = (end - row) * width,
                   .first = (static_cast<std::uint64_t>(pass.first_sample + b) << 32) +
                            static_cast<std::uint64_t>(pass.tokens.position(t) * width)});
  }
  return all;
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
