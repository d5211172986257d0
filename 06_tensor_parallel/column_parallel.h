// A linear layer of which each rank computes a part of the columns of y.
#pragma once

#include <string>

#include "common/nn/linear.h"

namespace aisc {

// y = x W^T + b, the rows of W (out, in) split over the t ranks of `tp`, in their order (Shoeybi et
// al., arXiv 1909.08053, section 3). The paper writes y = x A with A = W^T: A's columns.
//
//   y_r = x W_r^T + b_r     x (..., in), the same on all ranks; y_r (..., out/t)
//   dx  = sum of dy_r W_r   dy_r (..., out/t); dx the same on all ranks
//
// Forward sends nothing. Backward sums dx over tp (f), while it computes dW and db: the sum is
// started before dW's product and waited for after it. Of a dW that is deferred nothing is left to
// hide it.
// Steps: 2(t-1). Bytes sent per rank: 2(t-1)/t of dx, in backward.
class ColumnParallelLinear final : public Layer {
 public:
  // weight (out/t, in), drawn N(0, stddev) as the part of the whole; bias (out/t), 0. Throws Error
  // naming the layer, `out` and t if t does not divide `out`. tp must outlive it.
  ColumnParallelLinear(const Rank& rank, Communicator& tp, const std::string& name, std::int64_t in,
                       std::int64_t out, double stddev = 0.02,
                       Linear::Gelu gelu = Linear::Gelu::None);

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override { return {&weight_, &bias_}; }

 private:
  Communicator& tp_;
  Linear::Gelu gelu_;
  Parameter weight_, bias_;
};

}  // namespace aisc
