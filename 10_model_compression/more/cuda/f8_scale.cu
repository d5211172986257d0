// The largest number of a tensor on a GPU: each block of threads finds that of its share, and one
// more block that of all. Reads each number once. Not measured.
#include "10_model_compression/more/cuda/f8_elements.h"
#include "10_model_compression/more/eight_bits_gpu.h"
#include "common/ops/cuda/reduce.h"

namespace aisc::f8_gpu {
namespace {

// The largest of each block's share, n neighbours at a time.
template <int n, class T>
__global__ void __launch_bounds__(kThreads)
    largest_kernel(float* of_blocks, const T* x, std::int64_t count) {
  float largest = 0;
  for (std::int64_t begin = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * n; begin < count;
       begin += std::int64_t{gridDim.x} * kThreads * n) {
    const std::int64_t end = begin + n < count ? begin + n : count;
    if (n > 1 && begin + n == end) {
      const Neighbours<T, n> some = neighbours<n>(x + begin);
#pragma unroll
      for (int k = 0; k < n; ++k) largest = larger(largest, finite_size(some.elements[k]));
    } else {
      for (std::int64_t i = begin; i < end; ++i) largest = larger(largest, finite_size(x[i]));
    }
  }
  largest = reduce<kThreads>(largest, Larger{});
  if (threadIdx.x == 0) of_blocks[blockIdx.x] = largest;
}

// One block: the largest of all, or the scale for it.
struct Itself {
  __device__ float operator()(float largest) const { return largest; }
};
struct ScaleFor {
  F8Rounding rounding;
  __device__ float operator()(float largest) const { return rounding.scale_for(f32_bits(largest)); }
};
template <class F>
__global__ void __launch_bounds__(kThreads)
    largest_of_blocks_kernel(float* out, const float* of_blocks, unsigned blocks, F make) {
  float largest = 0;
  for (unsigned i = threadIdx.x; i < blocks; i += kThreads) largest = larger(largest, of_blocks[i]);
  largest = reduce<kThreads>(largest, Larger{});
  if (threadIdx.x == 0) *out = make(largest);
}

// out (1) = make(the largest |x|).
template <class F>
void find_largest(const View& out, const ConstView& x, F make) {
  // As many as an H200 can hold, or fewer, so that each thread has some numbers.
  constexpr unsigned kMostBlocks = 1024;
  const unsigned blocks = std::min(blocks_for(x.count(), kThreads * 16), kMostBlocks);
  const Tensor of_blocks({blocks}, DType::F32, x.device(), Purpose::Workspace);
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    dispatch_width<T>(aligned(x.raw()), [&]<int n>() {
      launch_kernel("largest magnitude", stream_of(x), blocks, kThreads, 0, largest_kernel<n, T>,
                    elements<float>(of_blocks.view()), elements<T>(x), x.count());
    });
  });
  launch_kernel("largest magnitude", stream_of(x), 1, kThreads, 0, largest_of_blocks_kernel<F>,
                elements<float>(out), elements<float>(of_blocks.view()), blocks, make);
}

}  // namespace

float largest_magnitude(ConstView x) {
  const Tensor found({1}, DType::F32, x.device(), Purpose::Workspace);
  find_largest(found, x, Itself{});
  CpuDevice host;
  float largest = 0;
  x.device().copy(View(&largest, {1}, DType::F32, host), found);
  return largest;
}

void find_scale(View scale, ConstView x, const NumberFormat& format) {
  find_largest(scale, x, ScaleFor{F8Rounding(format)});
}

}  // namespace aisc::f8_gpu
