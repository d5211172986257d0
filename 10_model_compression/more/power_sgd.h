// PowerSGD: ranks sum two thin factors of each matrix of gradients in its place (Vogels,
// Karimireddy, Jaggi, "PowerSGD: practical low-rank gradient compression for distributed
// optimization", NeurIPS 2019, arXiv 1905.13727, algorithm 1).
#pragma once

#include <cstdint>

#include "10_model_compression/more/low_rank.h"
#include "common/train/step_parts.h"

namespace aisc {

// Rank i has M_i, its part of the mean gradient M = sum of all M_i, and an error E_i:
//
//   A_i = M_i + E_i;  P = sum A_i Q, its columns made orthonormal;  Q_i = A_i^T P;  Q = sum Q_i
//   M' = P Q^T is the gradient of all;  E_i = A_i - P Q_i^T is for the next step
//
// The sum of all E_i is that of one rank with the whole batch: so N ranks take one rank's steps, to
// rounding, and one rank compresses, too. With the rank's own Q_i nothing that went out stays in
// its error; A_i - M' / N would have the same sum and keep what ranks differ in.
//
// Two all-reduces after backward: r n numbers of each matrix together with all gradients that are
// sent as they are (vectors, small matrices), then r m. A matrix of rank r or less passes whole.
class PowerSgd final : public Reducer {
 public:
  using Reducer::Reducer;
  void finish() override;  // the optimizer is a LowRankKeeper
};

// For a Trainer, around the optimizer of `parts` and in place of its reducer. Matrices are those
// that a rank has: of tensor ranks each compresses its part, of stages each its own. Throws Error
// where ranks divide gradients or weights, and for a scale of the loss, which changes what errors
// are worth.
StepParts power_sgd(std::int64_t rank, StepParts parts = {});

}  // namespace aisc
