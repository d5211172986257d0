// The end of a step whose loss was scaled: gradients become true ones, and a step whose gradients
// overflowed is skipped on all ranks. Micikevicius et al., arXiv 1710.03740, section 3.2.
#pragma once

#include <memory>

#include "10_model_compression/loss_scale.h"
#include "common/train/step_parts.h"

namespace aisc {

// A step's end (common/train/step_end.h) of gradients that are `scale` times too large, seen as
// that of true gradients; whatever finishes a step, in whatever order, needs to know no more. What
// it does not change it hands to `scaled`.
class UnscaledEnd final : public StepEnd {
 public:
  // `scaled` must outlive it.
  UnscaledEnd(StepEnd& scaled, double scale) : scaled_(scaled), scale_(scale) {}

  // True behind require_finite() of a norm that is not: weights and optimizer stay as they are.
  bool skipped() const { return skipped_; }

  void sum_over_tensor_ranks() override { scaled_.sum_over_tensor_ranks(); }
  void sum_over_data_ranks() override { scaled_.sum_over_data_ranks(); }
  void sum_tied_tables() override { scaled_.sum_tied_tables(); }
  double own_square() override;  // of true gradients
  double sum_over_world(double own) override { return scaled_.sum_over_world(own); }
  // A norm that is not finite is no error here: the step is skipped. All ranks have the same norm,
  // so that they decide alike; by what a rank finds in its own gradients alone they would not.
  void require_finite(double norm) override;
  // Of true gradients, times gradient_scale; nothing where the step is skipped.
  void update(double gradient_scale) override;
  void gather_weights() override { scaled_.gather_weights(); }

 private:
  StepEnd& scaled_;
  double scale_;
  bool skipped_ = false;
};

// With a LossScale. Throws Error, in finish(), on every rank: below the floor, and after
// kMostSkipped steps in a row, since then it is not the scale that is wrong.
inline constexpr std::int64_t kMostSkipped = 50;
std::unique_ptr<StepScale> scaled_step(const LossScaleOptions& options);

}  // namespace aisc
