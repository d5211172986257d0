// What the threads of a kernel call on the emulated GPU: their indices, barriers, operations of a
// warp, atomics and accesses to memory.
//
// A thread runs until it waits. A barrier and an operation of a warp wait for those whom they need,
// at the same place of the source; when nobody can go on, the launch fails and all places are
// named.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#include "cuda_runtime_api.h"

extern thread_local constinit uint3 threadIdx;
extern thread_local constinit uint3 blockIdx;
extern thread_local constinit dim3 blockDim;
extern thread_local constinit dim3 gridDim;
inline constexpr int warpSize = 32;

namespace aisc::emulated_gpu {

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel,
                   std::function<void()> thread);

struct Place {
  const char* file;
  int line;
};

// The block waits for all its threads that have not returned.
void barrier(const char* what, Place place);

enum class Needs { NotReturned, WholeWarp };

// Waits until the lanes in `mask` are here. One of them then calls `combine` with what each lane of
// `present`, those that have not returned, gave as `mine`.
using Combine = void (*)(void* const* mine, std::uint32_t present);
void collective(const char* what, std::uint32_t mask, Needs needs, Combine combine, void* mine,
                Place place);

int lane();  // of this thread in its warp
std::byte* dynamic_shared_memory();

// Ends the launch with an error, and names the thread and `what`.
[[noreturn]] void fault(cudaError_t error, const char* what);

template <class T>
void check_alignment(const T* address) {
  if (reinterpret_cast<std::uintptr_t>(address) % alignof(T) != 0)
    fault(cudaErrorMisalignedAddress, "an address that is not a multiple of what is read there");
}

template <class T>
struct Shuffle {
  T value;
  int source;  // lane
  T result;
};

// A lane that is not there gives ones in all bits, a NaN.
template <class T>
void shuffle(void* const* mine, std::uint32_t present) {
  for (int i = 0; i < 32; ++i) {
    if ((present >> i & 1) == 0) continue;
    auto* own = static_cast<Shuffle<T>*>(mine[i]);
    if (present >> own->source & 1)
      own->result = static_cast<Shuffle<T>*>(mine[own->source])->value;
    else
      std::memset(&own->result, 0xff, sizeof(T));
  }
}

template <class T>
T shuffle(const char* what, unsigned mask, T value, int source, Place place) {
  static_assert(std::is_arithmetic_v<T> && (sizeof(T) == 4 || sizeof(T) == 8));
  Shuffle<T> mine{value, source, value};
  collective(what, mask, Needs::NotReturned, shuffle<T>, &mine, place);
  return mine.result;
}

unsigned ballot(const char* what, unsigned mask, bool value, Place place);

}  // namespace aisc::emulated_gpu

// ---- barriers and operations of a warp; the two last arguments are where the call stands --------

inline void __syncthreads(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  aisc::emulated_gpu::barrier("__syncthreads", {file, line});
}
inline void __syncwarp(unsigned mask = 0xffffffffu, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
  aisc::emulated_gpu::ballot("__syncwarp", mask, false, {file, line});
}
inline unsigned __ballot_sync(unsigned mask, int value, const char* file = __builtin_FILE(),
                              int line = __builtin_LINE()) {
  return aisc::emulated_gpu::ballot("__ballot_sync", mask, value != 0, {file, line});
}

// A warp is cut into segments of `width` lanes, a power of two; who would read beyond its segment
// gets its own value back.
template <class T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32, const char* file = __builtin_FILE(),
              int line = __builtin_LINE()) {
  const int lane = aisc::emulated_gpu::lane();
  const int source = (lane & ~(width - 1)) + (from & (width - 1));
  return aisc::emulated_gpu::shuffle("__shfl_sync", mask, value, source, {file, line});
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32,
                  const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const int lane = aisc::emulated_gpu::lane();
  const int source = (lane ^ bits) <= (lane | (width - 1)) ? lane ^ bits : lane;
  return aisc::emulated_gpu::shuffle("__shfl_xor_sync", mask, value, source, {file, line});
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32,
                   const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const int lane = aisc::emulated_gpu::lane();
  const auto target = static_cast<unsigned>(lane) + distance;
  const int source = target <= static_cast<unsigned>(lane | (width - 1)) ? int(target) : lane;
  return aisc::emulated_gpu::shuffle("__shfl_down_sync", mask, value, source, {file, line});
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32,
                 const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  const int lane = aisc::emulated_gpu::lane();
  const auto within = static_cast<unsigned>(lane & (width - 1));
  const int source = distance <= within ? lane - static_cast<int>(distance) : lane;
  return aisc::emulated_gpu::shuffle("__shfl_up_sync", mask, value, source, {file, line});
}

[[noreturn]] inline void __trap() { aisc::emulated_gpu::fault(cudaErrorLaunchFailure, "__trap()"); }

// ---- memory -------------------------------------------------------------------------------------

// The threads of a grid run in one OS thread, for which its own accesses are in order; the system's
// other threads see them so only behind a fence of the processor.
inline void __threadfence() { std::atomic_signal_fence(std::memory_order_seq_cst); }
inline void __threadfence_system() { std::atomic_thread_fence(std::memory_order_seq_cst); }

template <class T>
T __ldg(const T* address) {
  aisc::emulated_gpu::check_alignment(address);
  return *address;
}
template <class T>
T __ldcg(const T* address) {
  return __ldg(address);
}
template <class T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).fetch_add(value);
}
template <class T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> desired) {
  std::atomic_ref<T>(*address).compare_exchange_strong(expected, desired);
  return expected;
}
