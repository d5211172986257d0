#include "10_model_compression/more/gradient_exponents.h"

#include <cmath>

namespace aisc {
namespace {

// f(value) of each, in F64, which holds them all exactly.
template <class F>
void for_each_gradient(ConstView gradients, F f) {
  if (gradients.count() == 0 || gradients.device().kind() == DeviceKind::Meta) return;
  dispatch(gradients.dtype(), [&](auto t) {
    using T = decltype(t);
    for (const T value : gradients.values<T>()) f(static_cast<double>(value));
  });
}

}  // namespace

std::int64_t GradientExponents::numbers() const {
  std::int64_t all = zeros + not_finite;
  for (const auto& [exponent, count] : counts) all += count;
  return all;
}

void GradientExponents::add(ConstView gradients) {
  for_each_gradient(gradients, [this](double g) {
    if (g == 0)
      ++zeros;
    else if (!std::isfinite(g))
      ++not_finite;
    else
      ++counts[std::ilogb(g)];
  });
}

double InF16::share(std::int64_t count) const {
  const std::int64_t all = numbers() - zeros;
  return all == 0 ? 0 : static_cast<double>(count) / static_cast<double>(all);
}

void InF16::add(ConstView gradients, double scale) {
  for_each_gradient(gradients, [this, scale](double g) {
    const double magnitude = std::abs(static_cast<double>(Float16(g * scale)));
    if (g == 0)
      ++zeros;
    else if (magnitude == 0)
      ++lost;
    else if (magnitude < 0x1p-14)
      ++subnormal;
    else if (std::isfinite(magnitude))
      ++normal;
    else
      ++overflow;
  });
}

}  // namespace aisc
