// A branch of a transformer block as Vaswani et al. have it, post-norm: y = norm(x + branch(x)).
#pragma once

#include <memory>

#include "common/nn/layer.h"

namespace aisc {

// y = norm(x + branch(x)), x and y (B, T, C) ("Attention is all you need", arXiv 1706.03762,
// section 3.1). A block is two of these in sequence, attention and MLP; a decoder's has a third
// between them, that looks at the encoder.
//
// What goes from block to block is always the output of a norm, where pre-norm (common/nn/block.h:
// x + branch(norm(x))) leaves the sum alone, and norms what a branch reads. So here no path leads
// from the loss to the first block that does not pass every norm on its way, and each of them
// rescales the gradient; there the residual stream is that path. That is why deep post-norm models
// need a long warm-up and pre-norm ones train without (Xiong et al., "On layer normalization in the
// transformer architecture", arXiv 2002.04745), and why GPT-2 and its successors have pre-norm.
class PostNormBranch final : public Layer {
 public:
  PostNormBranch(const Rank& rank, const std::string& name, std::unique_ptr<Layer> branch,
                 std::unique_ptr<Layer> norm)
      : Layer(rank, name), branch_(std::move(branch)), norm_(std::move(norm)) {}

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  // The branch's, then the norm's.
  std::vector<Parameter*> parameters() override;
  std::vector<Parameter*> borrows() override;

 private:
  Tensor sum(Tensor of_branch, const Tensor& trunk) const;

  std::unique_ptr<Layer> branch_, norm_;
};

}  // namespace aisc
