// F8 on a GPU. A scale is that of a block's largest number, which all of its threads have to find
// before any of them can round: blocks of numbers are looked at twice, the second time in a cache.
// Where the whole tensor has one scale it is found by kernels of their own, which leave it in the
// GPU's memory for the one that rounds (f8_scale.cu); the host waits for nothing.
//
// Bytes of a number of `size` bytes: codes size + 1, rounded 2 size, the whole tensor's scale size
// more. Not measured.
#include "10_model_compression/more/cuda/f8_elements.h"
#include "10_model_compression/more/eight_bits_gpu.h"
#include "10_model_compression/more/scale_tiling.h"
#include "common/ops/cuda/reduce.h"

namespace aisc::f8_gpu {
namespace {

using namespace aisc::cuda;

// What is made of a number or a code.
struct ToCode {
  template <class T>
  __device__ std::uint8_t operator()(T x, const F8Rounding& rounding) const {
    return rounding.code(f32_before_f8(widen(x)));
  }
};
struct ToRounded {
  template <class T>
  __device__ T operator()(T x, const F8Rounding& rounding) const {
    return narrow<T>(rounding.rounded(f32_before_f8(widen(x))));
  }
};
template <class T>
struct ToNumber {
  __device__ T operator()(std::uint8_t code, const F8Rounding& rounding) const {
    return narrow<T>(rounding.number(code));
  }
};

// One scale for all: that of `rounding`, or *scale.
template <int n, class Out, class In, class F>
__global__ void __launch_bounds__(kThreads)
    f8_elements_kernel(Out* out, const In* in, std::int64_t count, const F8Rounding rounding,
                       const float* scale, F make) {
  const F8Rounding its = scale != nullptr ? rounding.with(__ldg(scale)) : rounding;
  const std::int64_t begin = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * n;
  const std::int64_t end = begin + n < count ? begin + n : count;
  if (n > 1 && begin + n == end) {
    const Neighbours<In, n> x = neighbours<n>(in + begin);
    Neighbours<Out, n> made;
#pragma unroll
    for (int k = 0; k < n; ++k) made.elements[k] = make(x.elements[k], its);
    *reinterpret_cast<Neighbours<Out, n>*>(out + begin) = made;
  } else {
    for (std::int64_t i = begin; i < end; ++i) out[i] = make(in[i], its);
  }
}

// Calls use(i) for the numbers of a block of scales: its rows are shared among `threads / 32`
// warps.
template <int threads, class F>
__device__ __forceinline__ void for_numbers(const ScaleTiling& tiles, std::int64_t down,
                                            std::int64_t across, F use) {
  const std::int64_t first_row = down * tiles.high, first_column = across * tiles.wide;
  const std::int64_t next_row = first_row + tiles.high, next_column = first_column + tiles.wide;
  const std::int64_t end_row = next_row < tiles.rows ? next_row : tiles.rows;
  const std::int64_t end_column = next_column < tiles.columns ? next_column : tiles.columns;
  for (std::int64_t row = first_row + threadIdx.x % threads / 32; row < end_row;
       row += threads / 32)
    for (std::int64_t column = first_column + threadIdx.x % 32; column < end_column; column += 32)
      use(row * tiles.columns + column);
}

// `threads`, a warp or all of a block, have one block of the `count` that share scales. The scales
// are found, and written if they are asked for; or they are read.
template <int threads, bool find, class Out, class In, class F>
__global__ void __launch_bounds__(kThreads)
    f8_blocks_kernel(Out* out, float* scales, const In* in, ScaleTiling tiles, std::int64_t count,
                     std::int64_t across, const F8Rounding rounding, F make) {
  const std::int64_t block =
      std::int64_t{blockIdx.x} * (kThreads / threads) + threadIdx.x / threads;
  if (block >= count) return;  // all lanes of a warp, or nobody of a block
  const std::int64_t row = block / across, column = block % across;
  float scale;
  if constexpr (find) {
    float largest = 0;
    for_numbers<threads>(tiles, row, column,
                         [&](std::int64_t i) { largest = larger(largest, finite_size(in[i])); });
    scale = rounding.scale_for(f32_bits(reduce<threads>(largest, Larger{})));
    if (scales != nullptr && threadIdx.x % threads == 0) scales[block] = scale;
  } else {
    scale = __ldg(scales + block);
  }
  const F8Rounding its = rounding.with(scale);
  for_numbers<threads>(tiles, row, column, [&](std::int64_t i) { out[i] = make(in[i], its); });
}

// Scales of blocks are found, or read where they are `known`.
template <bool known, class Out, class In, class F>
void make_of_blocks(const char* what, Out* out, float* scales, const In* in,
                    const ScaleTiling& tiles, const NumberFormat& format, cudaStream_t stream,
                    F make) {
  const auto start = [&]<int threads>() {
    launch_kernel(what, stream, blocks_for(tiles.count(), kThreads / threads), kThreads, 0,
                  f8_blocks_kernel<threads, !known, Out, In, F>, out, scales, in, tiles,
                  tiles.count(), tiles.across(), F8Rounding(format), make);
  };
  // A warp for few numbers.
  tiles.high* tiles.wide <= 1024 ? start.template operator()<32>()
                                 : start.template operator()<kThreads>();
}

// With one scale: *scale, or where that is null that of `rounding`.
template <class Out, class In, class F>
void make_of_elements(const char* what, Out* out, const In* in, std::int64_t count,
                      const F8Rounding& rounding, const float* scale, cudaStream_t stream, F make) {
  using Longer = std::conditional_t<(sizeof(Out) > sizeof(In)), Out, In>;
  dispatch_width<Longer>(aligned(out, in), [&]<int n>() {
    launch_kernel(what, stream, blocks_for(count, kThreads * n), kThreads, 0,
                  f8_elements_kernel<n, Out, In, F>, out, in, count, rounding, scale, make);
  });
}

// scales: those that are found, to be kept; or null.
template <class Out, class In, class F>
void make_f8(const char* what, Out* out, float* scales, const ConstView& x,
             const NumberFormat& format, const ScaleBlocks& blocks, float known, F make) {
  const ScaleTiling tiles(x.shape(), blocks);
  const In* in = elements<In>(x);
  const cudaStream_t stream = stream_of(x);
  const F8Rounding rounding(format);
  if (known > 0)
    return make_of_elements(what, out, in, x.count(), rounding.with(known), nullptr, stream, make);
  if (!tiles.is_one())
    return make_of_blocks<false>(what, out, scales, in, tiles, format, stream, make);
  const Tensor found({1}, DType::F32, x.device(), Purpose::Workspace);
  const View scale = scales ? View(scales, {1}, DType::F32, x.device()) : found.view();
  find_scale(scale, x, format);
  make_of_elements(what, out, in, x.count(), rounding, elements<float>(ConstView(scale)), stream,
                   make);
}

}  // namespace

void to_f8(const F8Tensor& out, ConstView x, float scale) {
  if (scale > 0) ops::fill(out.scales, scale);
  dispatch(x.dtype(), [&](auto type) {
    make_f8<std::uint8_t, decltype(type)>("to F8", elements<std::uint8_t>(out.codes.view()),
                                          elements<float>(out.scales.view()), x, out.format,
                                          out.blocks, scale, ToCode{});
  });
}

void round_to_f8(View out, ConstView x, const NumberFormat& format, const ScaleBlocks& blocks,
                 float scale) {
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    make_f8<T, T>("round to F8", elements<T>(out), nullptr, x, format, blocks, scale, ToRounded{});
  });
}

void from_f8(View out, const F8Tensor& x) {
  const ScaleTiling tiles(x.codes.shape(), x.blocks);
  const auto* codes = elements<std::uint8_t>(ConstView(x.codes));
  auto* scales = elements<float>(x.scales.view());
  dispatch(out.dtype(), [&](auto type) {
    using T = decltype(type);
    if (tiles.is_one())
      make_of_elements("from F8", elements<T>(out), codes, out.count(), F8Rounding(x.format),
                       scales, stream_of(out), ToNumber<T>{});
    else
      make_of_blocks<true>("from F8", elements<T>(out), scales, codes, tiles, x.format,
                           stream_of(out), ToNumber<T>{});
  });
}

}  // namespace aisc::f8_gpu
