// How kernels are started: on which stream, in how many blocks, and whether in accesses of 16
// bytes.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/core/cuda/cuda_device.h"
#include "common/core/cuda/launch.h"
#include "common/core/tensor.h"
#include "common/ops/cuda/numbers.h"

namespace aisc::cuda {

inline constexpr int kThreads = 256;  // of a block, where nothing else is said

inline cudaStream_t stream_of(const ConstView& x) { return as_cuda(x.device()).stream(); }

inline std::int64_t pieces(std::int64_t count, std::int64_t size) {
  return (count + size - 1) / size;
}

// A dimension of a grid: as many as hold `count` things, `per_block` in each.
inline unsigned blocks_for(std::int64_t count, std::int64_t per_block) {
  return static_cast<unsigned>(pieces(count, per_block));
}

// For accesses of 16 bytes all pointers have to be multiples of 16; rows, of `columns` elements of
// `element_bytes`, as well.
template <class... Pointers>
bool aligned(const Pointers*... pointers) {
  return ((reinterpret_cast<std::uintptr_t>(pointers) % kAccessBytes == 0) && ...);
}

// f's template operator with the number of elements of an access of T, or with 1.
template <class T, class F>
void dispatch_width(bool wide, F&& f) {
  if (wide)
    f.template operator()<kWidth<T>>();
  else
    f.template operator()<1>();
}

template <class T>
const T* elements(const ConstView& x) {
  return static_cast<const T*>(x.raw());
}
template <class T>
T* elements(const View& x) {
  return static_cast<T*>(x.raw());
}

}  // namespace aisc::cuda
