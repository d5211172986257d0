// The two linear layers of a tensor-parallel block between ranks that have 1/t of the tokens each
// (Korthikanti et al., arXiv 2205.05198, section 4.2.2).
#pragma once

#include <string>

#include "common/nn/linear.h"

namespace aisc {

// y_r = x W_r^T + b_r: x (B, T/t, in), this rank's tokens; y_r (B, T, out/t), all tokens.
//
// Forward gathers x (g) and forgets what came from others: kept is the rank's own. Backward gathers
// it again while it computes its share of dx, and scatters the sum of dx while it computes dW and
// db. Where weight gradients are deferred (Pass::deferred) what was gathered stays until they run.
// While generating (Pass::cache) x is of all tokens on all ranks. Steps: 3(t-1). Bytes sent per
// rank: (t-1)/t of x of all tokens forward, twice that backward.
class GatheredColumnLinear final : public Layer {
 public:
  // As ColumnParallelLinear. tp must outlive it.
  GatheredColumnLinear(const Rank& rank, Communicator& tp, const std::string& name, std::int64_t in,
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

// y = sum of x_r W_r^T + b: x_r (B, T, in/t), all tokens; y (B, T/t, out), this rank's tokens
// (g-bar), to which it alone adds the bias: the bias' gradient is summed over tokens
// (token_share.h). While generating y is of all tokens on all ranks (g of f_and_g.h).
// Steps: 2(t-1). Bytes sent per rank: (t-1)/t of y of all tokens, forward and backward.
class ScatteredRowLinear final : public Layer {
 public:
  // As RowParallelLinear. tp must outlive it.
  ScatteredRowLinear(const Rank& rank, Communicator& tp, const std::string& name, std::int64_t in,
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
