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

}  // namespace aisc
