#include "10_model_compression/scaled_step.h"

#include <fmt/format.h>

#include <cmath>

#include "common/core/error.h"

namespace aisc {
namespace {

class ScaledStep final : public StepScale {
 public:
  explicit ScaledStep(const LossScaleOptions& options) : scale_(options) {}

  double factor() const override { return scale_.value(); }
  double finish(StepEnd& end, double clip, const FinishStep& finish) override;
  std::int64_t skipped() const override { return scale_.skipped(); }
  std::vector<double> state() const override { return scale_.state(); }
  void restore(std::span<const double> state) override { scale_.restore(state); }

 private:
  void require_use() const;

  LossScale scale_;
};

double ScaledStep::finish(StepEnd& end, double clip, const FinishStep& finish) {
  UnscaledEnd unscaled(end, scale_.value());
  const double norm = finish(unscaled, clip);
  if (unscaled.skipped()) require_use();
  scale_.after(unscaled.skipped() ? LossScale::Step::Overflow : LossScale::Step::Good);
  return norm;
}

// Of the overflow that is to be counted next.
void ScaledStep::require_use() const {
  constexpr const char* kCauses =
      "the usual causes: a learning rate that is too high, or a type that is too short (try "
      "--precision bf16)";
  if (scale_.is_lowest())
    fail(fmt::format("the gradients overflow though the loss scale is {}, its floor: {}",
                     scale_.value(), kCauses));
  if (scale_.skipped_in_a_row() + 1 >= kMostSkipped)
    fail(fmt::format("{} steps in a row were skipped, and the loss scale is {} by now: {}",
                     kMostSkipped, scale_.value(), kCauses));
}

}  // namespace

double UnscaledEnd::own_square() {
  // LAB 10.2: a step that may be skipped
  // > scaled_'s is of gradients that are scale_ times too large.
  return scaled_.own_square() / (scale_ * scale_);
  // END LAB 10.2
}

void UnscaledEnd::require_finite(double norm) {
  // LAB 10.2: a step that may be skipped
  // > Which norms are handed on, and what of the others?
  skipped_ = !std::isfinite(norm);
  if (!skipped_) scaled_.require_finite(norm);
  // END LAB 10.2
}

void UnscaledEnd::update(double gradient_scale) {
  // LAB 10.2: a step that may be skipped
  // > What makes gradients true again, and when does nothing move?
  if (!skipped_) scaled_.update(gradient_scale / scale_);
  // END LAB 10.2
}

std::unique_ptr<StepScale> scaled_step(const LossScaleOptions& options) {
  return std::make_unique<ScaledStep>(options);
}

}  // namespace aisc
