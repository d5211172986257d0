#include "common/optim/clip.h"

#include <cmath>

#include "common/core/error.h"
#include "common/ops/ops.h"

namespace aisc {

double global_norm(std::span<const ConstView> gradients) {
  double squares = 0;
  for (const ConstView& gradient : gradients) squares += ops::sum_of_squares(gradient);
  return std::sqrt(squares);
}

double clip_factor(double norm, double max_norm) {
  if (!(max_norm >= 0)) fail("clip: max_norm is " + std::to_string(max_norm) + ", expected >= 0");
  if (max_norm == 0) return 1;
  constexpr double kEpsilon = 1e-6;
  const double factor = max_norm / (norm + kEpsilon);
  return factor >= 1 ? 1 : factor;  // NaN stays NaN
}

}  // namespace aisc
