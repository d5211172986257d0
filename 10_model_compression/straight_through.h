// Training with weights as they will be after quantization ("quantization-aware training").
#pragma once

#include <functional>
#include <vector>

#include "10_model_compression/quantize.h"
#include "common/nn/model.h"
#include "common/train/step_parts.h"

namespace aisc {

// The weight of a linear layer in a block: (O, I), its name "blocks.<i>. ... .weight".
bool is_block_matrix(const Parameter& parameter);

// While a layer computes, forward or backward, its matrices hold what rounding makes of them
// (round_trip()); before and after, the true values, to the last bit. So losses and gradients are
// those of the rounded weights, and the update moves the true ones: many small updates add up to a
// step of the grid, which rounded weights would never leave. The gradient passes the rounding as if
// it were not there ("straight-through estimator": Bengio, Leonard and Courville, arXiv 1308.3432,
// section 4), where in truth the slope of a staircase is 0.
//
// A layer's matrices are there twice while it computes; the copy is of Purpose::Workspace. What
// recomputes a forward in backward does so with the rounded weights. Evaluation and generation by
// way of the trainer's hooks are of the rounded weights, too. On a device without numbers nothing
// is rounded.
//
// Of tensor ranks each rounds its own part: with a scale for a channel or a group that is what one
// rank rounds where rows are split (column-parallel), and with groups, where columns are
// (row-parallel), if each rank's are a multiple of the group. A scale for a tensor is another one
// on each rank. Weights that ZeRO 3 gathers are there, since these hooks are inside the reducer's.
class StraightThrough final : public LayerHook {
 public:
  // `rounds` says which parameters of rank 2 are rounded; empty: is_block_matrix.
  StraightThrough(const Rank& rank, const Model& model, const Quantization& how,
                  const std::function<bool(const Parameter&)>& rounds = {});

  void before_forward(std::size_t layer, const Pass& pass) override;
  void after_forward(std::size_t layer, const Pass& pass, Saved& saved) override;
  void before_backward(std::size_t layer, const Pass& pass, Saved& saved) override;
  void after_backward(std::size_t layer, const Pass& pass) override;

 private:
  void keep_and_round(std::size_t layer);
  void put_back(std::size_t layer);

  const Rank rank_;
  const Quantization how_;
  std::vector<std::vector<Parameter*>> matrices_;  // by layer: those that are rounded
  std::vector<Tensor> kept_;  // of the layer that computes: the true values of its matrices
};

// For a Trainer: these parts with the hook behind all others. Throws Error as
// Quantization::validate().
StepParts quantize_aware(const Quantization& how, StepParts parts);

}  // namespace aisc
