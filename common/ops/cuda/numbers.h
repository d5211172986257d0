// Elements as kernels handle them: widening and rounding, and several neighbours at once. A GPU
// moves memory fastest in accesses of 16 bytes a thread; how many elements that is, a kernel has as
// a template parameter, 1 where pointers or rows are not aligned for more.
#pragma once

#include <cuda_runtime.h>

#include <gpu/intrinsics.h>
#include <cstdint>

#include "common/core/dtype.h"

namespace aisc::cuda {

inline constexpr int kAccessBytes = 16;

// Elements of an access.
template <class T>
inline constexpr int kWidth = kAccessBytes / static_cast<int>(sizeof(T));

// ---- one element: widened to the type that sums are kept in, and rounded back -------------------

template <class T>
__device__ __forceinline__ T widen(T x) {
  return x;
}
__device__ __forceinline__ float widen(BFloat16 x) { return gpu::bf16_value(x.bits); }
__device__ __forceinline__ float widen(Float16 x) { return gpu::f16_value(x.bits); }

// round_to_odd of dtype.h.
__device__ __forceinline__ float rounded_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || value != value) return nearest;
  const bool above = fabs(static_cast<double>(nearest)) > fabs(value);
  return __uint_as_float((__float_as_uint(nearest) - (above ? 1u : 0u)) | 1u);
}

// The numbers that narrow() takes as they are: sums in either type.
template <class T>
struct Narrow {
  template <class S>
  static __device__ __forceinline__ T of(S x) {
    return static_cast<T>(x);
  }
};
template <>
struct Narrow<BFloat16> {
  static __device__ __forceinline__ BFloat16 of(float x) {
    BFloat16 result;
    result.bits = gpu::bf16_bits(x);
    return result;
  }
  static __device__ __forceinline__ BFloat16 of(double x) { return of(rounded_to_odd(x)); }
};
template <>
struct Narrow<Float16> {
  static __device__ __forceinline__ Float16 of(float x) {
    Float16 result;
    result.bits = gpu::f16_bits(x);
    return result;
  }
  static __device__ __forceinline__ Float16 of(double x) { return of(rounded_to_odd(x)); }
};

// Rounded to nearest, ties to even.
template <class T, class S>
__device__ __forceinline__ T narrow(S x) {
  return Narrow<T>::of(x);
}

// ---- n neighbours -------------------------------------------------------------------------------

// In memory; one access, or several of 16 bytes.
template <class T, int n>
struct alignas(n * sizeof(T) < kAccessBytes ? n * sizeof(T) : kAccessBytes) Neighbours {
  T elements[n];
};

template <int n, class T>
__device__ __forceinline__ Neighbours<T, n> neighbours(const T* from) {
  return *reinterpret_cast<const Neighbours<T, n>*>(from);
}

template <int n, class T>
__device__ __forceinline__ void widen_all(Accumulator<T> (&values)[n],
                                          const Neighbours<T, n>& from) {
#pragma unroll
  for (int k = 0; k < n; ++k) values[k] = widen(from.elements[k]);
}

template <int n, class T>
__device__ __forceinline__ void load(Accumulator<T> (&values)[n], const T* from) {
  widen_all<n>(values, neighbours<n>(from));
}

template <int n, class T, class S>
__device__ __forceinline__ void store(T* to, const S (&values)[n]) {
  Neighbours<T, n> rounded;
#pragma unroll
  for (int k = 0; k < n; ++k) rounded.elements[k] = narrow<T>(values[k]);
  *reinterpret_cast<Neighbours<T, n>*>(to) = rounded;
}

// ---- functions that are fast and good enough for sums in their type -----------------------------

// e^x, in F32 with a relative error of about 2^-22 + |x| 2^-23; 0 where that is subnormal.
__device__ __forceinline__ float exp_of(float x) { return gpu::fast_exp2(x * 1.44269504f); }
__device__ __forceinline__ double exp_of(double x) { return exp(x); }

// a / b, in F32 within 2 units in the last place for |b| < 2^126, and 0 for finite a beyond.
__device__ __forceinline__ float quotient(float a, float b) { return __fdividef(a, b); }
__device__ __forceinline__ double quotient(double a, double b) { return a / b; }

__device__ __forceinline__ float larger(float a, float b) { return fmaxf(a, b); }  // not the NaN
__device__ __forceinline__ double larger(double a, double b) { return fmax(a, b); }
__device__ __forceinline__ float log_of(float x) { return logf(x); }
__device__ __forceinline__ double log_of(double x) { return log(x); }
__device__ __forceinline__ float erfc_of(float x) { return erfcf(x); }
__device__ __forceinline__ double erfc_of(double x) { return erfc(x); }
__device__ __forceinline__ float root_of(float x) { return sqrtf(x); }
__device__ __forceinline__ double root_of(double x) { return sqrt(x); }

template <class S>
__device__ __forceinline__ S minus_infinity() {
  return -static_cast<S>(INFINITY);
}

}  // namespace aisc::cuda
