#include "common/nn/block.h"

namespace aisc {

// branch + trunk, in place of the branch where nobody else holds it.
Tensor Block::residual(Tensor branch, const Tensor& trunk) const {
  const auto span = rank_.trace.span("residual", name_);
  Tensor sum = output_like(branch);
  ops::add(sum, branch, trunk);
  return sum;
}

Tensor Block::forward(Tensor x, Saved& saved, const Pass& pass) const {
  x = residual(attention_.forward(x.share(), saved, pass), x);
  return residual(mlp_.forward(x.share(), saved, pass), x);
}

// Both paths of a residual connection receive the same gradient, and what they return is added.
Tensor Block::backward(Tensor dy, Saved& saved, const Pass& pass) {
  dy = residual(mlp_.backward(dy.share(), saved, pass), dy);
  return residual(attention_.backward(dy.share(), saved, pass), dy);
}

std::vector<Parameter*> Block::parameters() {
  return joined(attention_.parameters(), mlp_.parameters());
}

std::vector<Parameter*> Block::borrows() { return joined(attention_.borrows(), mlp_.borrows()); }

}  // namespace aisc
