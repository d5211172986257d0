// What a training run is asked for: sizes, steps and rates.
#pragma once

#include <cstdint>

#include "common/comm/mesh.h"
#include "common/nn/gpt.h"
#include "common/optim/schedule.h"
#include "common/train/recompute.h"

namespace aisc {

struct TrainConfig {
  GptConfig model;
  Recompute recompute;                // in the backward pass, instead of kept
  DType gradient_dtype = DType::F32;  // the model's type, or F32 beside a shorter one
  std::int64_t batch = 16;            // samples of `model.context` tokens per step, over all ranks
  std::int64_t micro_batches = 1;     // parts a rank's share is computed in; divides batch
  // Stages of a pipeline, and ranks that share each layer: all ranks are pp times dp times tp
  // (comm/mesh.h), those of one dp with 1/dp of the batch.
  int pp = 1, tp = 1;
  int cp = 1;  // ranks that share each sequence
  int ep = 1;  // data-parallel ranks that share the experts, with those of tp; divides dp
  // Ranks with a share of the batch of their own.
  int data_ranks(int all_ranks) const { return all_ranks / (pp * tp * cp); }
  MeshShape mesh(int all_ranks) const {
    return {.dp = data_ranks(all_ranks), .pp = pp, .cp = cp, .tp = tp, .ep = ep};
  }
  bool has_mesh() const { return pp * tp * cp * ep > 1; }
  std::int64_t steps = 1000;
  double learning_rate = 1e-3, min_learning_rate = 1e-4;
  std::int64_t warmup_steps = 100;
  Warmup warmup = Warmup::Linear;
  Decay decay = Decay::Cosine;
  RateSchedule rates() const;  // of these steps and rates
  double weight_decay = 0.1, beta1 = 0.9, beta2 = 0.95;
  double clip = 1.0;  // global norm; 0: none
  std::uint64_t seed = 1;

  void validate(int all_ranks = 1) const;  // throws Error: what, found, expected
};

}  // namespace aisc
