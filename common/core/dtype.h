// Element types, known at run time. Kernels are templates inside ops; `dispatch` is the one switch
// per call that leads from a DType to the C++ type.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "common/core/error.h"

namespace aisc {

enum class DType { F64, F32, BF16, F16, I64, I32, U8 };

std::size_t size_of(DType dtype);       // bytes of one element
const char* name_of(DType dtype);       // "F64", "BF16", ...
DType parse_dtype(std::string_view s);  // "bf16" or "BF16"; throws Error naming the choices
bool is_floating(DType dtype);

// The F32 below `value` in size with its last bit set where bits were lost. A second rounding to a
// shorter type then gives what one rounding would have given: nothing lost looks like a tie.
float round_to_odd(double value);

// The upper half of an F32: 8 exponent bits, 7 mantissa bits. Rounds to nearest, ties to even.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) {
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    const std::uint32_t quiet_nan = (u >> 16) | 0x40u;
    bits = static_cast<std::uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
  }
  explicit BFloat16(double value) : BFloat16(round_to_odd(value)) {}
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
  explicit operator double() const { return static_cast<float>(*this); }
};

// IEEE half precision: 5 exponent bits, 10 mantissa bits. Rounds to nearest, ties to even; values
// beyond 65504 become infinite, small ones subnormal.
struct Float16 {
  std::uint16_t bits = 0;

  Float16() = default;
  explicit Float16(float value);
  explicit Float16(double value) : Float16(round_to_odd(value)) {}
  explicit operator float() const;
  explicit operator double() const { return static_cast<float>(*this); }
};

template <class T>
struct DTypeOf;
template <>
struct DTypeOf<double> : std::integral_constant<DType, DType::F64> {};
template <>
struct DTypeOf<float> : std::integral_constant<DType, DType::F32> {};
template <>
struct DTypeOf<BFloat16> : std::integral_constant<DType, DType::BF16> {};
template <>
struct DTypeOf<Float16> : std::integral_constant<DType, DType::F16> {};
template <>
struct DTypeOf<std::int64_t> : std::integral_constant<DType, DType::I64> {};
template <>
struct DTypeOf<std::int32_t> : std::integral_constant<DType, DType::I32> {};
template <>
struct DTypeOf<std::uint8_t> : std::integral_constant<DType, DType::U8> {};

// The type sums are kept in: F64 for F64, F32 for all shorter floating types.
template <class T>
using Accumulator = std::conditional_t<std::is_same_v<T, double>, double, float>;

// The same of a DType: in it statistics of x are kept (means, log-sum-exps, moments).
inline DType statistics_of(DType dtype) { return dtype == DType::F64 ? DType::F64 : DType::F32; }

// Calls f(T{}) with the C++ type of a floating dtype; throws Error for integers.
template <class F>
decltype(auto) dispatch(DType dtype, F&& f) {
  switch (dtype) {
    case DType::F64:
      return f(double{});
    case DType::F32:
      return f(float{});
    case DType::BF16:
      return f(BFloat16{});
    case DType::F16:
      return f(Float16{});
    default:
      fail(std::string("a floating type is needed, found ") + name_of(dtype));
  }
}
// Calls f(T{}, U{}) with that type and the one of `other`, which is the same or F32.
template <class F>
void dispatch_or_f32(DType dtype, DType other, F&& f) {
  dispatch(dtype, [&](auto type) {
    if (other == dtype)
      f(type, type);
    else
      f(type, float{});
  });
}

}  // namespace aisc
