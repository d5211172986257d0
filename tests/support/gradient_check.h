// Are these gradients the slopes of this loss? Asked of the loss itself, by central differences.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>

#include "common/core/tensor.h"

namespace aisc {

struct GradientCheck {
  // The error of a central difference is about step^2 |f'''| / 6, plus 1e-16 |f| / step of
  // rounding: near 1e-5 both are small for losses of order 1.
  double step = 1e-5;
  // Relative to the larger of the gradient's element and its root mean square.
  double tolerance = 1e-7;
  // How many elements are checked, drawn by a fixed generator; 0: all.
  std::int64_t samples = 0;
};

// Compares dx with (loss(x + step) - loss(x - step)) / (2 step), element by element. `loss`
// computes forward anew from x, an F64 tensor that is moved and afterwards restored. A failure
// names the worst element, both slopes and how many are off.
::testing::AssertionResult check_gradient(const std::function<double()>& loss, View x,
                                          ConstView analytic_dx, const GradientCheck& check = {});

// The loss that gradient tests of single operations use: sum of y_i weights_i, whose gradient with
// respect to y is `weights`.
double dot(ConstView y, ConstView weights);

}  // namespace aisc
