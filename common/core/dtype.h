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
  // Both ways are computed and one is chosen, as in the way back: without branches loops vectorise.
  // From 2^16 on all numbers are infinite, as 2^16 is, and what rounds to it.
  explicit Float16(float value) {
    constexpr std::uint32_t kBias = 112u << 23, kEnd = (127u + 16u) << 23, kHalf = 126u << 23;
    const auto u = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = u & 0x7fffffffu, below = magnitude < kEnd ? magnitude : kEnd;
    // A normal number lacks 13 bits of F32's.
    const std::uint32_t normal = (below - kBias + 0xfffu + (below >> 13 & 1u)) >> 13;
    // Below 2^-14 the last place of F16 is 2^-24: that of a sum with 1/2 in F32.
    const float sum = std::bit_cast<float>(below) + 0.5f;
    const std::uint32_t small = std::bit_cast<std::uint32_t>(sum) - kHalf;
    const std::uint32_t number = below < kBias + (1u << 23) ? small : normal;
    bits = static_cast<std::uint16_t>((value != value ? 0x7e00u : number) | (u >> 16 & 0x8000u));
  }
  explicit Float16(double value) : Float16(round_to_odd(value)) {}
  explicit operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t magnitude = bits & 0x7fffu;
    // Zero or subnormal: that many times 2^-24, exact in F32. Normal numbers get the exponents of
    // F32; those of infinity and NaN are the largest there, too.
    const auto small =
        std::bit_cast<std::uint32_t>(static_cast<float>(static_cast<int>(magnitude)) * 0x1p-24f);
    const std::uint32_t normal =
        (magnitude << 13) + (magnitude < 0x7c00u ? 112u : 224u) * 0x800000u;
    return std::bit_cast<float>(sign | (magnitude < 0x400u ? small : normal));
  }
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
