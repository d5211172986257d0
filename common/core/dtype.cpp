#include "common/core/dtype.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

namespace aisc {
namespace {

struct Entry {
  DType dtype;
  const char* name;
  std::size_t bytes;
};
constexpr std::array<Entry, 7> kTypes{{{DType::F64, "F64", 8},
                                       {DType::F32, "F32", 4},
                                       {DType::BF16, "BF16", 2},
                                       {DType::F16, "F16", 2},
                                       {DType::I64, "I64", 8},
                                       {DType::I32, "I32", 4},
                                       {DType::U8, "U8", 1}}};

const Entry& entry(DType dtype) { return kTypes[static_cast<std::size_t>(dtype)]; }

}  // namespace

std::size_t size_of(DType dtype) { return entry(dtype).bytes; }

const char* name_of(DType dtype) { return entry(dtype).name; }

bool is_floating(DType dtype) { return dtype <= DType::F16; }

DType parse_dtype(std::string_view s) {
  std::string upper(s);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  for (const Entry& e : kTypes)
    if (upper == e.name) return e.dtype;
  fail("unknown type '" + std::string(s) + "': expected one of F64 F32 BF16 F16 I64 I32 U8");
}

float round_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || value != value) return nearest;
  const auto bits = std::bit_cast<std::uint32_t>(nearest);
  const bool above = std::abs(static_cast<double>(nearest)) > std::abs(value);
  return std::bit_cast<float>((bits - (above ? 1u : 0u)) | 1u);
}

// Rounding happens on the 13 bits that F16 lacks. Below the smallest normal number (2^-14) the
// value is a multiple of 2^-24, so adding 0.5 in F32, whose last place is then 2^-24, rounds it.
Float16::Float16(float value) {
  const auto u = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
  std::uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u;                       // NaN
  } else if (magnitude >= 0x477ff000u) {  // 65520 and more round to infinity
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // below 2^-14
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    half = std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u;
  } else {
    const std::uint32_t odd = (magnitude >> 13) & 1u;
    half = (magnitude - 0x38000000u + 0xfffu + odd) >> 13;
  }
  bits = static_cast<std::uint16_t>(sign | half);
}

Float16::operator float() const {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu, mantissa = bits & 0x3ffu;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in F32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  const std::uint32_t wide = exponent == 31 ? 0xffu : exponent + 112u;
  return std::bit_cast<float>(sign | (wide << 23) | (mantissa << 13));
}

}  // namespace aisc
