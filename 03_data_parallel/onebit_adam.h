// 1-bit Adam: once Adam's variance has settled, ranks exchange signs of momentum in place of
// gradients (Tang et al., "1-bit Adam: communication efficient large-scale training with Adam's
// convergence speed", ICML 2021, algorithm 1).
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "03_data_parallel/bucketed_reduction.h"
#include "03_data_parallel/signs.h"
#include "common/train/step_parts.h"

namespace aisc {

// m <- b1 m + (1 - b1) g,  v <- b2 v + (1 - b2) g^2,  w <- w - lr (m' / (sqrt v' + eps) + decay w)
//
// During warm-up exactly AdamW, of gradients that were summed over the ranks. Then v stays as it
// is: what is left is linear in the gradients. So each rank moves its momentum by its own gradient,
// all take the mean of all ranks' by signs (signs.h), and update alike.
//
// Unlike the paper it is u = m / (sqrt v' + eps) that ranks exchange, in the units of the update.
// Signs give all numbers of a block the same size: of m, a weight whose v is tiny (a key's bias, of
// which the gradient is rounding noise) would then make steps of any length. And a gradient counts
// at most 1 / sqrt(1 - b2) times sqrt v', as much as Adam could see if it had been in v: so a token
// that was rare while v was measured does not upset its block.
class OneBitAdam final : public Optimizer {
 public:
  struct Options {
    AdamW::Options adam = {};
    std::int64_t least_warmup =
        0;  // steps: the learning rate's warm-up, in which v must not settle
    // The warm-up ends when sum(v) of 1 / (1 - b2) steps ago is at least `settled` times today's
    // (the paper's figure is .96) and today's at least `settled` times that; or, where `warmup` is
    // not 0, after so many steps.
    double settled = 0.96;
    std::int64_t warmup = 0;
  };
  // Weights in F32 or BF16, on the host or without numbers (then `warmup` must be given); throws
  // Error elsewhere.
  OneBitAdam(const Rank& rank, std::vector<OptimizerSlice> slices, const Options& options);

  // False: the gradients of the next step must be summed over the ranks; true: they must not be.
  bool is_compressing() const;
  // Not under AdamW's names: while compressing it is something else.
  std::vector<State> state() const override;
  std::vector<State> own_state() const override;  // this rank's errors

 private:
  void do_step(const OptimizerStep& options, std::int64_t step) override;
  void exact_step(const OptimizerStep& options, std::int64_t step);
  bool has_settled(std::int64_t step);
  void begin_compressing(std::int64_t step);
  void move_momentum();
  void update(const OptimizerStep& options, std::int64_t step);
  View of_slice(const Tensor& all, std::size_t slice) const;

  const Rank rank_;
  const Options options_;
  std::vector<std::int64_t> begins_;  // of the slices in what follows: each has blocks of its own,
  std::vector<std::int64_t> used_;    // of each block so many numbers
  Tensor m_, v_;  // (n) F32: all slices, padded for mean_by_signs; m_ while compressing: u
  SignErrors errors_;
  CpuDevice host_;
  Tensor settled_at_;  // (1) F64: the last step of the warm-up; 0: not yet
  Tensor sums_;        // F64: sum(v) of the last steps, round and round
};

// Sums gradients, as `sum` does, until the optimizer wants them apart.
class SumWhileExact final : public Reducer {
 public:
  SumWhileExact(const Rank& rank, ParameterStore& store, std::unique_ptr<Reducer> sum)
      : Reducer(rank, store), sum_(std::move(sum)) {}
  void begin() override;
  void complete(std::size_t layer) override;
  void finish() override;
  // While compressing, the root of the mean of the ranks' squared norms.
  double norm(const MeshPlace& place) const override;

 private:
  bool is_compressing() const;

  const std::unique_ptr<Reducer> sum_;
};

// Both, for a Trainer, whose figures it takes: `warmup` as in Options, and how gradients are summed
// before.
StepParts onebit_adam(std::int64_t warmup, const BucketOptions& buckets = {});

}  // namespace aisc
