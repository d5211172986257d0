// The emulated GPU's side of common/core/cuda/native/gpu/intrinsics.h: the same functions.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace aisc::gpu {

// Exactly as large as was asked for, and full of ones (NaN) when a block begins.
template <class T>
T* dynamic_shared() {
  return reinterpret_cast<T*>(emulated_gpu::dynamic_shared_memory());
}

// ---- short floating types: rounded to nearest, ties to even; NaN becomes 0x7fff -----------------

float bf16_value(std::uint16_t bits);
std::uint16_t bf16_bits(float value);
float f16_value(std::uint16_t bits);
std::uint16_t f16_bits(float value);

inline std::uint32_t pack_bf16(float low, float high) {
  return bf16_bits(low) | static_cast<std::uint32_t>(bf16_bits(high)) << 16;
}
inline std::uint32_t pack_f16(float low, float high) {
  return f16_bits(low) | static_cast<std::uint32_t>(f16_bits(high)) << 16;
}

float fast_exp2(float x);  // 2^x; 0 where that is subnormal

// ---- tensor cores: products are summed in F64 and rounded once ----------------------------------

void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
              const char* file = __builtin_FILE(), int line = __builtin_LINE());
void mma_f16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
             const char* file = __builtin_FILE(), int line = __builtin_LINE());
void load_matrices(std::uint32_t (&words)[4], const void* shared_row,
                   const char* file = __builtin_FILE(), int line = __builtin_LINE());
void load_matrices_transposed(std::uint32_t (&words)[4], const void* shared_row,
                              const char* file = __builtin_FILE(), int line = __builtin_LINE());

// ---- copies as late as they may be: in copy_async_wait() ----------------------------------------

void copy_async_16(void* shared, const void* global, bool valid = true);
void copy_async_commit();
void copy_async_wait_for(int groups);
template <int groups>
void copy_async_wait() {
  copy_async_wait_for(groups);
}

}  // namespace aisc::gpu
