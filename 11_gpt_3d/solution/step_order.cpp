#include "11_gpt_3d/step_order.h"

#include <cmath>

#include "common/optim/clip.h"

namespace aisc {

double finish_step(StepEnd& step, double clip) {
  // LAB 11.2: order of a step
  // > Which sums does the norm need, and which sum needs another one before it? What does update()
  // > need? A rank that throws by what it alone knows leaves the others waiting, or lets them move
  // > their weights: require_finite() is for a number that all ranks have.
  step.sum_over_tensor_ranks();
  step.sum_over_data_ranks();
  step.sum_tied_tables();
  const double norm = std::sqrt(step.sum_over_world(step.own_square()));
  step.require_finite(norm);
  step.update(clip_factor(norm, clip));
  step.gather_weights();
  return norm;
  // END LAB 11.2
}

}  // namespace aisc
