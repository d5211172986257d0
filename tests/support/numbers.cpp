#include "tests/support/numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "tests/support/tensors.h"

namespace aisc {
namespace {

bool is_near(double a, double b, double tolerance) {
  return a == b || (std::isnan(a) && std::isnan(b)) ||
         (std::isfinite(b) && std::abs(a - b) <= tolerance * (1 + std::abs(b)));
}

bool are_near(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](double x, double y) { return is_near(x, y, tolerance); });
}

}  // namespace

::testing::AssertionResult numbers_are(const std::string& where, ConstView found,
                                       const std::vector<double>& expected,
                                       const std::vector<KnownMistake>& mistakes,
                                       double tolerance) {
  const std::vector<double> numbers = to_doubles(found);
  if (numbers.size() != expected.size())
    return ::testing::AssertionFailure()
           << where << ": " << numbers.size() << " numbers, expected " << expected.size();
  std::size_t wrong = 0, first = 0;
  for (std::size_t i = numbers.size(); i-- > 0;)
    if (!is_near(numbers[i], expected[i], tolerance)) ++wrong, first = i;
  if (wrong == 0) return ::testing::AssertionSuccess();
  auto failure = ::testing::AssertionFailure() << fmt::format(
                     "{}[{}] is {:.6g}, expected {:.6g}; {} of {} numbers are wrong.", where, first,
                     numbers[first], expected[first], wrong, numbers.size());
  for (const KnownMistake& mistake : mistakes)
    if (are_near(numbers, mistake.numbers, tolerance))
      return failure << "\nAll numbers are as if " << mistake.why
                     << (mistake.why.back() == '?' ? "" : ".");
  return failure;
}

}  // namespace aisc
