#include "tests/support/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tests/support/tensors.h"

namespace aisc {
namespace {

double root_mean_square(const std::vector<double>& values) {
  double sum = 0;
  std::int64_t count = 0;
  for (const double value : values)
    if (std::isfinite(value)) {
      sum += value * value;
      ++count;
    }
  return count == 0 ? 0.0 : std::sqrt(sum / static_cast<double>(count));
}

// Infinite where no tolerance helps.
double distance(double actual, double expected) {
  if (std::isnan(actual) && std::isnan(expected)) return 0;
  if (actual == expected) return 0;
  const double difference = std::abs(actual - expected);
  return std::isnan(difference) ? INFINITY : difference;
}

}  // namespace

Tolerance tolerance_of(DType dtype, double growth) {
  switch (dtype) {
    case DType::F64:
      return {growth * kF64Tolerance.relative};
    case DType::F32:
      return {growth * kF32Tolerance.relative};
    case DType::BF16:
      return {growth * kBF16Tolerance.relative};
    case DType::F16:
      return {growth * kF16Tolerance.relative};
    default:
      return {0.0};  // integers are equal or not
  }
}

std::string index_string(const Shape& shape, std::int64_t i) {
  std::string inside;
  for (int d = shape.rank() - 1; d >= 0; i /= shape[d--])
    inside = fmt::format("{}{}{}", i % shape[d], inside.empty() ? "" : ", ", inside);
  return "(" + inside + ")";
}

::testing::AssertionResult all_close(ConstView actual, const std::vector<double>& expected,
                                     Tolerance tolerance) {
  const std::vector<double> found = to_doubles(actual);
  if (found.size() != expected.size())
    return ::testing::AssertionFailure()
           << fmt::format("{} elements of shape {}, expected {}", found.size(),
                          actual.shape().to_string(), expected.size());
  const double scale = std::max(tolerance.scale, root_mean_square(expected));
  const auto allowed = [&](std::size_t i) {
    const double size = std::isfinite(expected[i]) ? std::abs(expected[i]) : 0.0;
    return tolerance.relative * std::max(size, scale);
  };
  std::size_t off = 0, worst = 0;
  double worst_excess = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double excess = distance(found[i], expected[i]) - allowed(i);
    if (excess <= 0) continue;
    ++off;
    if (excess > worst_excess) {
      worst = i;
      worst_excess = excess;
    }
  }
  if (off == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << fmt::format(
             "{} of {} elements ({}) are off; the worst at {}: found {:.9g}, expected {:.9g}, "
             "off by {:.3g} where {:.3g} is allowed",
             off, found.size(), name_of(actual.dtype()),
             index_string(actual.shape(), static_cast<std::int64_t>(worst)), found[worst],
             expected[worst], distance(found[worst], expected[worst]), allowed(worst));
}

::testing::AssertionResult has_nan(ConstView x) {
  for (const double value : to_doubles(x))
    if (std::isnan(value)) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure()
         << "no NaN in " << x.count() << " elements of shape " << x.shape().to_string();
}

}  // namespace aisc
