#include "tests/support/gradient_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "common/core/rng.h"
#include "tests/support/compare.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

// Which elements of `count` to look at.
std::vector<std::size_t> chosen(std::int64_t count, std::int64_t samples) {
  const bool all = samples <= 0 || samples >= count;
  const Philox random(0, "gradient check");
  std::vector<std::size_t> indices(static_cast<std::size_t>(all ? count : samples));
  for (std::size_t i = 0; i < indices.size(); ++i)
    indices[i] =
        all ? i : static_cast<std::size_t>(random.below(i, static_cast<std::uint64_t>(count)));
  return indices;
}

}  // namespace

::testing::AssertionResult check_gradient(const std::function<double()>& loss, View x,
                                          ConstView analytic_dx, const GradientCheck& check) {
  if (x.count() != analytic_dx.count())
    return ::testing::AssertionFailure()
           << fmt::format("a gradient of shape {} for a tensor of shape {}",
                          analytic_dx.shape().to_string(), x.shape().to_string());
  const std::vector<double> analytic = to_doubles(analytic_dx);
  if (x.dtype() != DType::F64)
    return ::testing::AssertionFailure() << "x is " << name_of(x.dtype()) << ", expected F64";
  const std::vector<double> values = to_doubles(x);
  const auto move = [&](std::size_t i, double to) {
    write_doubles(x.flat(static_cast<std::int64_t>(i), 1), {to});
  };
  double squares = 0;
  for (const double value : analytic) squares += value * value;
  const double scale = std::sqrt(squares / std::max<double>(1, static_cast<double>(x.count())));
  // A slope of zero is measured as noise: both losses are rounded.
  const double noise = 64 * 0x1p-53 * std::abs(loss()) / check.step;

  std::size_t off = 0, worst = 0;
  double worst_excess = 0, worst_slope = 0;
  const std::vector<std::size_t> indices = chosen(x.count(), check.samples);
  for (const std::size_t i : indices) {
    const double original = values[i];
    const double above = original + check.step, below = original - check.step;
    move(i, above);
    const double loss_above = loss();
    move(i, below);
    const double loss_below = loss();
    move(i, original);
    const double slope = (loss_above - loss_below) / (above - below);
    const double allowed = check.tolerance * std::max(std::abs(analytic[i]), scale) + noise;
    const double excess = std::abs(slope - analytic[i]) - allowed;
    if (excess <= 0) continue;  // false for NaN
    ++off;
    if (off == 1 || !(excess <= worst_excess)) {
      worst = i;
      worst_excess = excess;
      worst_slope = slope;
    }
  }
  if (off == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << fmt::format(
             "{} of {} gradients are off; the worst at {}: {:.9g} by the backward pass, {:.9g} by "
             "differences of the loss",
             off, indices.size(), index_string(x.shape(), static_cast<std::int64_t>(worst)),
             analytic[worst], worst_slope);
}

double dot(ConstView y, ConstView weights) {
  const std::vector<double> a = to_doubles(y), b = to_doubles(weights);
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b.at(i);
  return sum;
}

}  // namespace aisc
