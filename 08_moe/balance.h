// What keeps experts equally busy: losses of the router alone.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "common/nn/layer.h"

namespace aisc {

// Of a sample of T tokens, with f_e the share of tokens whose first choice is e, and P_e the mean
// of the probabilities, the softmax of the scores:
//   balance * E sum_e f_e P_e      which is `balance` where routing is uniform, and up to E times
//   as
//                                  much where all choose one expert (Fedus et al., "Switch
//                                  Transformers", arXiv 2101.03961, section 2.2). f_e counts, and
//                                  has no gradient: the loss moves P.
//   z_loss * mean_t lse_t^2        with the log-sum-exp of the scores: they stay small (Zoph et
//                                  al., "ST-MoE", arXiv 2202.08906, section 3).
// By sample, so that ranks and micro-batches may divide samples as they like. The mean over samples
// is what each block with experts adds to the loss.
struct RouterLosses {
  double balance = 0, z_loss = 0;  // 0: without

  // T times the losses of each sample, summed: sums over tokens, as the model's loss is one.
  // scores (B, T, E); first (B E): f. 0 on a device without numbers.
  double sum(const Tensor& scores, const std::vector<double>& first) const;
  // factor * the gradient of that sum: (B, T, E).
  Tensor gradient(const Tensor& scores, const std::vector<double>& first, double factor) const;
};

// f of B samples, (B E), of experts (B, T, k) on the host.
std::vector<double> first_choices(std::span<const std::int32_t> experts, std::int64_t samples,
                                  std::int64_t chosen, std::int64_t expert_count);

}  // namespace aisc
