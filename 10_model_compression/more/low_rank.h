// What a rank keeps for a gradient that travels as two thin factors, and the one step of it that is
// no product: columns that are made orthonormal.
#pragma once

#include <memory>
#include <vector>

#include "common/nn/parameter.h"
#include "common/optim/optimizer.h"

namespace aisc {

// Makes the columns of p (n, r), F32 or F64 on the host, orthonormal, one after the other
// (Gram-Schmidt). What is made up of the columns before it, to rounding, becomes 0. On a device
// without numbers it takes its time alone.
void orthogonalize(View p);

// What a rank keeps for a matrix M (n, m) of gradients, from step to step.
struct LowRank {
  const Parameter* parameter;
  View error;  // (n, m): what it has not sent yet
  View q;      // (m, r): the last step's factor, with which the next one begins; of all ranks
};

// An optimizer, and beside it what ranks keep for PowerSGD: as own state it is saved with a run,
// which goes on with as many ranks. F32 or F64 of each element of a matrix, and r (m) for q.
class LowRankKeeper final : public Optimizer {
 public:
  // `update` does the steps. A matrix is a parameter of two dimensions or more, all but the last
  // its rows, whose factors are less: r (n + m) < n m. Throws Error for a rank below 1, for
  // gradients that are neither F32 nor F64, and for a GPU's.
  LowRankKeeper(std::unique_ptr<Optimizer> update, std::int64_t rank, std::uint64_t seed);

  const LowRank* find(const Parameter& parameter) const;  // null: it is sent as it is
  // Fills the columns of q that are 0 with numbers drawn by the parameter's name and the step, the
  // same on all ranks: all at first, later those in whose direction there was nothing.
  void draw_missing(const LowRank& matrix) const;
  std::vector<State> state() const override { return update_->state(); }
  std::vector<State> own_state() const override;

 private:
  void do_step(const OptimizerStep& options, std::int64_t step) override;
  void resumed() override { update_->resume(steps()); }

  const std::unique_ptr<Optimizer> update_;
  const std::uint64_t seed_;
  Tensor errors_, qs_;  // of all matrices
  std::vector<LowRank> matrices_;
};

}  // namespace aisc
