#include "10_model_compression/number_format.h"

#include <algorithm>
#include <limits>

namespace aisc {

// Between two powers of two numbers are equally far apart: 2^exponent is cut into 2^M steps. Below
// the smallest normal number the steps stay as they are there, so that 0 is one of them.
//
//   F16, 2^-26:  exponent -14 (not -26), a step is 2^-24, 2^-26 is a quarter of one: 0 steps
//   E4M3, 17:    exponent 4, a step is 2^4 / 2^3 = 2; 8.5 steps lie between 8 and 9: 8, the even
//                one, and so 16; the code is (4 - (-6)) * 8 + 8 = 88 = 0 1011 000
std::uint32_t encode(const NumberFormat& format, double value, Overflow overflow) {
  const std::uint32_t sign = std::signbit(value) ? format.sign_code() : 0;
  if (std::isnan(value)) return sign | format.nan_code();
  if (std::isinf(value)) return sign | format.infinity_code();
  const double size = std::abs(value);
  // LAB 10.3: round to a format
  // > `size` is finite and has no sign. Which power of two is not above it (std::ilogb; of 0 and of
  // > what is smaller than all normal numbers: format.smallest_exponent())? How far apart are the
  // > format's numbers there? std::nearbyint() rounds a number of such steps, ties to even. The
  // > result may be beyond format.largest(): then `overflow` says which code it is. Else: with each
  // > exponent above the smallest the code grows by 2^mantissa_bits, with each step by 1.
  const int smallest = format.smallest_exponent();
  const int exponent = size < format.smallest_normal() ? smallest : std::ilogb(size);
  const double step = std::ldexp(1, exponent - format.mantissa_bits);
  const double steps = std::nearbyint(size / step);  // 2^M .. 2^(M+1), fewer of subnormal numbers
  if (steps * step > format.largest())
    return sign | (overflow == Overflow::Saturate ? format.largest_code() : format.infinity_code());
  // The first exponent's code field counts from 0 (subnormal), and its 2^M steps lead to 1: adding
  // the steps carries into the exponent where it has to.
  const auto exponents = static_cast<std::uint32_t>(exponent - smallest);
  return sign | ((exponents << format.mantissa_bits) + static_cast<std::uint32_t>(steps));
  // END LAB 10.3
}

float decode(const NumberFormat& format, std::uint32_t code) {
  const std::uint32_t size = code & (format.sign_code() - 1);
  const float sign = (code & format.sign_code()) != 0 ? -1.0f : 1.0f;
  if (size >= format.infinity_code())
    return format.infinity && size == format.infinity_code()
               ? sign * std::numeric_limits<float>::infinity()
               : std::copysign(std::numeric_limits<float>::quiet_NaN(), sign);
  const auto field = static_cast<int>(size >> format.mantissa_bits);
  const std::uint32_t mantissa = size & ((1u << format.mantissa_bits) - 1);
  const std::uint32_t first = field > 0 ? 1u << format.mantissa_bits : 0;
  const int exponent = format.smallest_exponent() + std::max(field - 1, 0);
  return sign * std::ldexp(static_cast<float>(first + mantissa), exponent - format.mantissa_bits);
}

}  // namespace aisc
