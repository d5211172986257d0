// Sums and maxima over the threads of a warp and of a block, in an order that is always the same.
#pragma once

#include "common/ops/cuda/numbers.h"

namespace aisc::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;

struct Add {
  template <class S>
  __device__ __forceinline__ S operator()(S a, S b) const {
    return a + b;
  }
};
struct Larger {
  template <class S>
  __device__ __forceinline__ S operator()(S a, S b) const {
    return larger(a, b);
  }
};

// Over groups of `lanes` lanes, a power of two. All lanes of the warp call it, and all of a group
// get the same bits.
template <int lanes = 32, class S, class Combine>
__device__ __forceinline__ S warp_reduce(S value, Combine combine) {
#pragma unroll
  for (int distance = lanes / 2; distance > 0; distance /= 2)
    value = combine(value, __shfl_xor_sync(kAllLanes, value, distance));
  return value;
}

// The same over `threads` threads, a multiple of 32: one warp, or a whole block with the linear
// index threadIdx.x.
template <int threads, class S, class Combine>
__device__ __forceinline__ S reduce(S value, Combine combine) {
  value = warp_reduce(value, combine);
  if constexpr (threads > 32) {
    constexpr int kWarps = threads / 32;
    __shared__ S of_warps[kWarps];
    const unsigned lane = threadIdx.x % 32;
    __syncthreads();  // what a call before this one left has been read
    if (lane == 0) of_warps[threadIdx.x / 32] = value;
    __syncthreads();
    value = warp_reduce<kWarps>(of_warps[lane % kWarps], combine);
  }
  return value;
}

}  // namespace aisc::cuda
