// What a training run is asked for: sizes, steps and rates.
#pragma once

#include <cstdint>

#include "common/nn/gpt.h"
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
  // Ranks with a share of the batch of their own.
  int data_ranks(int all_ranks) const { return all_ranks / (pp * tp); }
  // Of how many micro-batches a rank has activations at once, for needed_bytes: what its blocks
  // keep of `whole`, the input alone of the others up to `all`; and `bytes` that may be kept
  // besides. 0: those of the plain loop, or of a pipeline that takes them forward and backward in
  // turn.
  struct AtOnce {
    double whole = 0, all = 0, bytes = 0;
  } at_once;
  double extra_state = 0;  // likewise: numbers of the optimizer's a parameter, beside AdamW's
  // Likewise: bytes of weights, gradients and optimizer on a rank at the worst moment of a step,
  // where ranks divide them or the optimizer is another; 0: AdamW over all of them.
  double model_bytes = 0;
  std::int64_t steps = 1000;
  double learning_rate = 1e-3, min_learning_rate = 1e-4;
  std::int64_t warmup_steps = 100;
  double weight_decay = 0.1, beta1 = 0.9, beta2 = 0.95;
  double clip = 1.0;  // global norm; 0: none
  std::uint64_t seed = 1;

  void validate(int all_ranks = 1) const;  // throws Error: what, found, expected

  // About what a rank's Trainer takes at most, without the workspace of kernels: to be asked before
  // there is one. A double, since no size is too large to ask for.
  struct Bytes {
    double model;        // weights, gradients, AdamW's state
    double activations;  // of a micro-batch
  };
  Bytes needed_bytes(int all_ranks = 1) const;
};

}  // namespace aisc
