// What kernels need and CUDA C++ has no short word for: each function is one instruction, or two.
// The tensor cores' fragments are those of the PTX ISA, "Matrix fragments for mma.m16n8k16". A file
// of the same name in emulated_gpu/ does the same on the CPU.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace aisc::gpu {

// The block's dynamic shared memory, aligned to 128 bytes.
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char aisc_dynamic_shared[];
  return reinterpret_cast<T*>(aisc_dynamic_shared);
}

// ---- short floating types: rounded to nearest, ties to even; NaN stays NaN ----------------------

__device__ __forceinline__ float bf16_value(std::uint16_t bits) {
  return __uint_as_float(static_cast<std::uint32_t>(bits) << 16);
}
// `low` in the lower half of the word, as in memory.
__device__ __forceinline__ std::uint32_t pack_bf16(float low, float high) {
  std::uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
__device__ __forceinline__ std::uint16_t bf16_bits(float value) {
  return static_cast<std::uint16_t>(pack_bf16(value, 0.0f));
}

__device__ __forceinline__ float f16_value(std::uint16_t bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
  return value;
}
__device__ __forceinline__ std::uint32_t pack_f16(float low, float high) {
  std::uint32_t word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(high), "f"(low));
  return word;
}
__device__ __forceinline__ std::uint16_t f16_bits(float value) {
  return static_cast<std::uint16_t>(pack_f16(value, 0.0f));
}

// 2^x, with a relative error below 2^-22; 2^-infinity is 0.
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// ---- tensor cores: all 32 lanes of a warp together ----------------------------------------------

// d (16, 8) += a (16, 16) b (16, 8). With group = lane / 4 and pair = lane % 4 this lane holds
//   d: {(group, 2 pair), (group, 2 pair + 1), (group + 8, 2 pair), (group + 8, 2 pair + 1)}
//   a: {(group, 2 pair ..+1), (group + 8, 2 pair ..+1), (group, 2 pair + 8 ..+9),
//       (group + 8, 2 pair + 8 ..+9)}, two neighbours of a row to a word
//   b: {(2 pair ..+1, group), (2 pair + 8 ..+9, group)}, two neighbours of a column to a word
__device__ __forceinline__ void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4],
                                         const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void mma_f16(float (&d)[4], const std::uint32_t (&a)[4],
                                        const std::uint32_t (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four 8 x 8 matrices of 16-bit elements from shared memory. Lane 8 i + r gives the address of row
// r of matrix i (16 bytes, aligned to 16). Lane l receives of matrix i, in words[i], the elements
// (l / 4, 2 (l % 4)) and the one after it; transposed: (2 (l % 4), l / 4) and the one below it.
__device__ __forceinline__ void load_matrices(std::uint32_t (&words)[4], const void* shared_row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared_row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&words)[4],
                                                         const void* shared_row) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared_row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
}

// ---- copies that run beside the computation (compute capability 8.0) ----------------------------

// 16 bytes from global to shared memory, both aligned to 16; zeros where not `valid`, and `global`
// is then not read. There only after copy_async_wait() and a barrier.
__device__ __forceinline__ void copy_async_16(void* shared, const void* global, bool valid = true) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared));
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
               :
               : "r"(address), "l"(global), "r"(bytes)
               : "memory");
}
// Ends a group of copies of this thread.
__device__ __forceinline__ void copy_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most the `groups` newest groups of this thread are still on their way.
template <int groups>
__device__ __forceinline__ void copy_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
}

}  // namespace aisc::gpu
