#include "12_encoders/post_norm.h"

#include <utility>

#include "common/nn/sequence.h"

namespace aisc {

// of_branch + trunk, in place of the branch's where nobody else holds it.
Tensor PostNormBranch::sum(Tensor of_branch, const Tensor& trunk) const {
  const auto span = rank_.trace.span("residual", name_);
  Tensor both = output_like(of_branch);  // (B, T, C)
  ops::add(both, of_branch, trunk);
  return both;
}

Tensor PostNormBranch::forward(Tensor x, Saved& saved, const Pass& pass) const {
  Tensor both = sum(branch_->forward(x.share(), saved, pass), x);
  x = {};
  return norm_->forward(std::move(both), saved, pass);
}

// The norm is the last of forward and so the first here: what it returns is the gradient of the
// sum, which both of its terms receive. x is in both, and what comes back from them is added.
Tensor PostNormBranch::backward(Tensor dy, Saved& saved, const Pass& pass) {
  const Tensor dsum = norm_->backward(std::move(dy), saved, pass);
  return sum(branch_->backward(dsum.share(), saved, pass), dsum);
}

std::vector<Parameter*> PostNormBranch::parameters() {
  return joined(branch_->parameters(), norm_->parameters());
}

std::vector<Parameter*> PostNormBranch::borrows() {
  return joined(branch_->borrows(), norm_->borrows());
}

}  // namespace aisc
