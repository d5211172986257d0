// A linear layer of which each rank has a part of the columns of x.
#pragma once

#include <string>

#include "common/nn/linear.h"

namespace aisc {

// y = x W^T + b, the columns of W (out, in) split over the t ranks of `tp`, in their order (Shoeybi
// et al., arXiv 1909.08053, section 3). The paper writes y = x A with A = W^T: A's rows. It takes
// what a ColumnParallelLinear returns, without anything sent between them.
//
//   y    = sum of x_r W_r^T, + b   x_r (..., in/t); y (..., out), the same on all ranks
//   dx_r = dy W_r                  dy (..., out), the same on all ranks; dx_r (..., in/t)
//
// Forward sums over tp (g) and adds the bias, which every rank has whole, once, to the sum.
// Backward sends nothing: db = the rows of dy is the same on all ranks, and is not summed over tp.
// Steps: 2(t-1). Bytes sent per rank: 2(t-1)/t of y, in forward.
class RowParallelLinear final : public Layer {
 public:
  // weight (out, in/t), drawn N(0, stddev) as the part of the whole; bias (out), 0. A GELU may
  // stand before the layer (nn/linear.h), not behind it: it would need the sum, which the product
  // has not. Throws Error naming the layer for that; and naming the layer, `in` and t if t does not
  // divide `in`. tp must outlive it.
  RowParallelLinear(const Rank& rank, Communicator& tp, const std::string& name, std::int64_t in,
                    std::int64_t out, double stddev = 0.02, Linear::Gelu gelu = Linear::Gelu::None);

  Tensor forward(Tensor x, Saved& saved, const Pass& pass) const override;
  Tensor backward(Tensor dy, Saved& saved, const Pass& pass) override;
  std::vector<Parameter*> parameters() override { return {&weight_, &bias_}; }

 private:
  Tensor sum_of_shares(const Tensor& x) const;

  Communicator& tp_;
  Linear::Gelu gelu_;
  Parameter weight_, bias_;
};

}  // namespace aisc
