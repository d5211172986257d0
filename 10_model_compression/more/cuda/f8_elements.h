// Numbers as the kernels of F8 look at them.
#pragma once

#include "10_model_compression/more/f8_rounding.h"
#include "common/ops/cuda/grid.h"

namespace aisc::f8_gpu {

using namespace aisc::cuda;

__device__ __forceinline__ float f32_before_f8(float x) { return x; }
__device__ __forceinline__ float f32_before_f8(double x) { return rounded_to_odd(x); }

// 0 of what is not finite.
template <class T>
__device__ __forceinline__ float finite_size(T x) {
  const float size = fabsf(f32_before_f8(widen(x)));
  return f32_bits(size) < F8Rounding::kInfinity ? size : 0.0f;
}

}  // namespace aisc::f8_gpu
