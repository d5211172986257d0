// One thread an element, in rounds of the whole grid: 3 elements of memory traffic for each, which
// is all that matters here. Elements are read and written one by one: buffers of plans begin
// anywhere.
#include "common/comm/nccl/reduce.h"

#include <gpu/intrinsics.h>

#include <algorithm>
#include <type_traits>

#include "common/core/cuda/launch.h"

namespace aisc::nccl {
namespace {

constexpr int kBlock = 256;
constexpr std::int64_t kMostBlocks = 2048;

// Elements as memory has them, and what they are computed in.
template <class T>
struct Plain {
  using Stored = T;
  using Wide = T;
  static __device__ T load(T x) { return x; }
  static __device__ T store(T x) { return x; }
};
struct Bf16 {
  using Stored = std::uint16_t;
  using Wide = float;
  static __device__ float load(std::uint16_t bits) { return gpu::bf16_value(bits); }
  static __device__ std::uint16_t store(float x) { return gpu::bf16_bits(x); }
};
struct F16 {
  using Stored = std::uint16_t;
  using Wide = float;
  static __device__ float load(std::uint16_t bits) { return gpu::f16_value(bits); }
  static __device__ std::uint16_t store(float x) { return gpu::f16_bits(x); }
};

// Sums and products of integers are those of 64 unsigned bits, cut: they wrap round.
template <ReduceOp op, class W>
__device__ __forceinline__ W apply(W a, W b) {
  if constexpr (op == ReduceOp::Min) {
    const W less = a < b ? a : b;  // b where one is NaN ...
    return a != a ? a : less;      // ... but a where that is it
  } else if constexpr (op == ReduceOp::Max) {
    const W more = a > b ? a : b;
    return a != a ? a : more;
  } else if constexpr (std::is_integral_v<W>) {
    const auto u = static_cast<std::uint64_t>(a), v = static_cast<std::uint64_t>(b);
    return static_cast<W>(op == ReduceOp::Sum ? u + v : u * v);
  } else {
    return op == ReduceOp::Sum ? a + b : a * b;
  }
}

template <class Element, ReduceOp op>
__global__ void __launch_bounds__(kBlock)
    reduce_kernel(typename Element::Stored* to, const typename Element::Stored* from,
                  std::int64_t count) {
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kBlock;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kBlock + threadIdx.x; i < count;
       i += stride)
    to[i] = Element::store(
        apply<op, typename Element::Wide>(Element::load(to[i]), Element::load(from[i])));
}

template <class Element, ReduceOp op>
void launch(void* to, const void* from, std::int64_t count, cudaStream_t stream) {
  using Stored = typename Element::Stored;
  const auto blocks = std::min(kMostBlocks, (count + kBlock - 1) / kBlock);
  launch_kernel("reduce", stream, dim3(static_cast<unsigned>(blocks)), dim3(kBlock), 0,
                reduce_kernel<Element, op>, static_cast<Stored*>(to),
                static_cast<const Stored*>(from), count);
}

template <class Element>
void launch(void* to, const void* from, std::int64_t count, ReduceOp op, cudaStream_t stream) {
  switch (op) {
    case ReduceOp::Sum:
      return launch<Element, ReduceOp::Sum>(to, from, count, stream);
    case ReduceOp::Product:
      return launch<Element, ReduceOp::Product>(to, from, count, stream);
    case ReduceOp::Min:
      return launch<Element, ReduceOp::Min>(to, from, count, stream);
    case ReduceOp::Max:
      return launch<Element, ReduceOp::Max>(to, from, count, stream);
  }
}

}  // namespace

void reduce_into(void* to, const void* from, std::int64_t count, DType dtype, ReduceOp op,
                 cudaStream_t stream) {
  switch (dtype) {
    case DType::F64:
      return launch<Plain<double>>(to, from, count, op, stream);
    case DType::F32:
      return launch<Plain<float>>(to, from, count, op, stream);
    case DType::BF16:
      return launch<Bf16>(to, from, count, op, stream);
    case DType::F16:
      return launch<F16>(to, from, count, op, stream);
    case DType::I64:
      return launch<Plain<std::int64_t>>(to, from, count, op, stream);
    case DType::I32:
      return launch<Plain<std::int32_t>>(to, from, count, op, stream);
    case DType::U8:
      return launch<Plain<std::uint8_t>>(to, from, count, op, stream);
  }
}

}  // namespace aisc::nccl
