#include "tests/support/same_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace aisc {
namespace {

using Tensors = std::map<std::string, std::vector<double>>;

// "" if all is well; NaN is never the same. What there is one of a step: "loss", "losses".
std::string compare_steps(const char* kind, const char* kinds, const std::vector<double>& serial,
                          const std::vector<double>& other, double tolerance) {
  if (serial.size() != other.size())
    return fmt::format("{} {}, serial has {}", other.size(), kinds, serial.size());
  for (std::size_t i = 0; i < serial.size(); ++i) {
    const double a = serial[i], b = other[i];
    if (!(std::abs(a - b) <= tolerance * std::max(1.0, std::abs(a))))
      return fmt::format("the {} of step {} is {:.12g}, serial {:.12g}: off by {:.3g}", kind, i, b,
                         a, std::abs(a - b));
  }
  return {};
}

std::string compare_names(const char* kind, const Tensors& serial, const Tensors& other) {
  std::string missing, extra;
  for (const auto& [name, values] : serial)
    if (!other.contains(name)) missing += " " + name;
  for (const auto& [name, values] : other)
    if (!serial.contains(name)) extra += " " + name;
  std::string text;
  if (!missing.empty()) text += fmt::format("{} missing:{}", kind, missing);
  if (!extra.empty())
    text += fmt::format("{}{} that serial has not:{}", text.empty() ? "" : "; ", kind, extra);
  return text;
}

std::string compare_values(const char* kind, const std::string& name,
                           const std::vector<double>& serial, const std::vector<double>& other,
                           double tolerance) {
  if (serial.size() != other.size())
    return fmt::format("{} of {}: {} elements, serial has {}", kind, name, other.size(),
                       serial.size());
  double squares = 0;
  for (const double value : serial) squares += value * value;
  const double scale =
      std::sqrt(squares / static_cast<double>(std::max<std::size_t>(1, serial.size())));
  std::size_t off = 0, first = 0, worst = 0;
  double largest = 0;
  for (std::size_t i = 0; i < serial.size(); ++i) {
    const double difference = std::abs(serial[i] - other[i]);
    if (difference <= tolerance * std::max(std::abs(serial[i]), scale)) continue;  // false for NaN
    if (off == 0) first = i;
    if (off++ == 0 || !(difference <= largest)) {
      worst = i;
      largest = difference;
    }
  }
  if (off == 0) return {};
  return fmt::format(
      "{} of {}: {} of {} elements are off; the first at {}, the worst at {}: {:.12g}, serial "
      "{:.12g}",
      kind, name, off, serial.size(), first, worst, other[worst], serial[worst]);
}

std::string compare_tensors(const char* kind, const char* kinds, const Tensors& serial,
                            const Tensors& other, double tolerance) {
  std::string text = compare_names(kinds, serial, other);
  for (const auto& [name, values] : serial) {
    if (!text.empty()) break;
    if (const auto found = other.find(name); found != other.end())
      text = compare_values(kind, name, values, found->second, tolerance);
  }
  return text;
}

}  // namespace

::testing::AssertionResult same_run(const RunRecord& serial, const RunRecord& other,
                                    double tolerance) {
  std::string text = compare_steps("loss", "losses", serial.losses, other.losses, tolerance);
  const bool norms = !serial.norms.empty() && !other.norms.empty();
  for (const std::string& more :
       {norms ? compare_steps("norm", "norms", serial.norms, other.norms, tolerance) : "",
        compare_tensors("gradient", "gradients", serial.gradients, other.gradients, tolerance),
        compare_tensors("weight", "weights", serial.weights, other.weights, tolerance)})
    if (!more.empty()) text += (text.empty() ? "" : "\n") + more;
  if (text.empty()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << text;
}

}  // namespace aisc
