// The factor of the loss under which gradients in F16 neither vanish nor overflow: it grows until
// it is too large, falls, and so follows the largest that the gradients bear. Micikevicius et al.,
// "Mixed precision training", arXiv 1710.03740, section 3.2; rules as PyTorch and DeepSpeed have
// them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace aisc {

struct LossScaleOptions {
  double initial = 65536;       // 2^16
  std::int64_t window = 2000;   // good steps in a row, after which it grows; 0: it is static
  std::int64_t hysteresis = 1;  // the first hysteresis - 1 overflows after it grew change nothing
  double floor = 0;             // it falls no further; 0: as far as need be
  double growth = 2, back_off = 0.5;
  bool operator==(const LossScaleOptions&) const = default;

  // Throws Error for what is not finite or has no sense, naming what was found and expected.
  void validate() const;
};

// torch.cuda.amp.GradScaler's defaults: those above.
LossScaleOptions pytorch_scale();
// DeepSpeed's for "fp16": window 1000, hysteresis 2, and an error below a scale of 1.
LossScaleOptions deepspeed_scale();
// One that never changes; steps that overflow are skipped nevertheless.
LossScaleOptions static_scale(double scale);

// The rule alone: what it is told is the same on all ranks, and so is the scale.
class LossScale {
 public:
  // Throws Error as validate().
  explicit LossScale(const LossScaleOptions& options);

  double value() const { return value_; }  // of the step that comes next
  const LossScaleOptions& options() const { return options_; }
  // The overflows in a row that end with the newest step, and all so far. Each skipped a step.
  std::int64_t skipped_in_a_row() const { return skipped_in_a_row_; }
  std::int64_t skipped() const { return skipped_; }
  // True: one more overflow would lower it below the floor.
  bool is_lowest() const;

  // A step is over. After an overflow the scale is times back_off, at least the floor, if
  // hysteresis - 1 overflows before it, since it last grew, changed nothing. After `window` steps
  // in a row without it is times growth, and as many overflows are forgiven as at the start.
  enum class Step { Good, Overflow };
  void after(Step step);

  // What a checkpoint keeps: value, good steps in a row, overflows that are still forgiven, skipped
  // in a row, skipped. restore() throws Error for what state() did not return.
  std::vector<double> state() const;
  void restore(std::span<const double> state);

 private:
  LossScaleOptions options_;
  double value_;
  std::int64_t good_ = 0;  // steps in a row, since it last grew
  std::int64_t forgiven_;  // overflows that change nothing any more
  std::int64_t skipped_in_a_row_ = 0, skipped_ = 0;
};

}  // namespace aisc
