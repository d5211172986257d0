// Dropout: the mask and the values of the CPU, bit for bit. Philox gives four words a block; a
// thread computes the blocks that its elements need.
//
// Bytes moved per element of `size` bytes: 2 size, and 1 where the mask is written or read. Share
// of a copy's bandwidth (./aisc bench gpu, BF16 on an H200): .69; ten rounds of Philox for four
// elements are more than the time of their bytes.
#include <cmath>

#include "common/ops/cuda/grid.h"
#include "common/ops/cuda/kernels.h"
#include "common/ops/cuda/numbers.h"

namespace aisc::cuda {
namespace {

struct Words {
  std::uint32_t word[4];
};

// Philox::block of rng.h.
struct PhiloxStream {
  std::uint32_t key[2], stream[2];

  __device__ __forceinline__ Words block(std::uint64_t counter) const {
    std::uint32_t c0 = static_cast<std::uint32_t>(counter), c2 = stream[0], c3 = stream[1];
    std::uint32_t c1 = static_cast<std::uint32_t>(counter >> 32);
    std::uint32_t key0 = key[0], key1 = key[1];
#pragma unroll
    for (int round = 0; round < 10; ++round) {
      const std::uint32_t low0 = 0xD2511F53u * c0, high0 = __umulhi(0xD2511F53u, c0);
      const std::uint32_t low1 = 0xCD9E8D57u * c2, high1 = __umulhi(0xCD9E8D57u, c2);
      c0 = high1 ^ c1 ^ key0;
      c1 = low1;
      c2 = high0 ^ c3 ^ key1;
      c3 = low0;
      key0 += 0x9E3779B9u;
      key1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
  }
};

template <class T>
struct Mask {
  PhiloxStream random;
  std::uint64_t first;  // the index of element 0
  std::uint32_t keep_from;
  Accumulator<T> factor;
  std::uint8_t* is_kept;  // null: the mask is not written

  // x as element i, or 0; notes which.
  __device__ __forceinline__ Accumulator<T> kept(Accumulator<T> x, std::int64_t i,
                                                 std::uint32_t bits) const {
    if (is_kept) is_kept[i] = bits >= keep_from;
    return bits >= keep_from ? factor * x : Accumulator<T>(0);
  }
};

// A thread has `groups` groups of four elements, each with the words of one block: `first` is a
// multiple of 4.
template <int groups, class T>
__global__ void __launch_bounds__(kThreads)
    dropout_kernel(T* to, const T* from, std::int64_t count, Mask<T> mask) {
  constexpr int n = 4 * groups;
  const std::int64_t begin = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * n;
  if (begin >= count) return;
  const bool whole = begin + n <= count;
  Accumulator<T> x[n];
  if (whole) load<n>(x, from + begin);
#pragma unroll
  for (int group = 0; group < groups; ++group) {
    const auto place = static_cast<std::uint64_t>(begin + 4 * group);
    const Words bits = mask.random.block((mask.first + place) / 4);
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const std::int64_t i = begin + 4 * group + w;
      if (whole)
        x[4 * group + w] = mask.kept(x[4 * group + w], i, bits.word[w]);
      else if (i < count)
        to[i] = narrow<T>(mask.kept(widen(from[i]), i, bits.word[w]));
    }
  }
  if (whole) store<n>(to + begin, x);
}

// For an index that begins inside a block of words, and for pointers that are not aligned.
template <class T>
__global__ void __launch_bounds__(kThreads)
    dropout_single_kernel(T* to, const T* from, std::int64_t count, Mask<T> mask) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const std::uint64_t index = mask.first + static_cast<std::uint64_t>(i);
  const Words words = mask.random.block(index / 4);
  std::uint32_t bits = words.word[0];
#pragma unroll
  for (unsigned w = 1; w < 4; ++w)
    if (index % 4 == w) bits = words.word[w];
  to[i] = narrow<T>(mask.kept(widen(from[i]), i, bits));
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    dropout_backward_kernel(T* to, const T* from, const std::uint8_t* is_kept, std::int64_t count,
                            Accumulator<T> factor) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < count) to[i] = narrow<T>(is_kept[i] ? factor * widen(from[i]) : Accumulator<T>(0));
}

}  // namespace

// Element i is kept if its 32 random bits, as a whole number, are at least rate * 2^32.
void dropout(View y, ConstView x, double rate, const Philox& random, std::uint64_t first_index,
             View mask_out) {
  const double bound = std::min(std::ceil(rate * 0x1p32), 0x1p32 - 1);
  const PhiloxStream stream{{random.key()[0], random.key()[1]},
                            {random.stream()[0], random.stream()[1]}};
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    constexpr int kGroups = sizeof(T) == 2 ? 2 : 1;
    const Mask<T> mask{stream, first_index, static_cast<std::uint32_t>(bound),
                       static_cast<Accumulator<T>>(1 / (1 - rate)),
                       mask_out ? elements<std::uint8_t>(mask_out) : nullptr};
    if (first_index % 4 == 0 && aligned(y.raw(), x.raw()))
      launch_kernel("dropout", stream_of(x), blocks_for(x.count(), kThreads * 4 * kGroups),
                    kThreads, 0, dropout_kernel<kGroups, T>, elements<T>(y), elements<T>(x),
                    x.count(), mask);
    else
      launch_kernel("dropout", stream_of(x), blocks_for(x.count(), kThreads), kThreads, 0,
                    dropout_single_kernel<T>, elements<T>(y), elements<T>(x), x.count(), mask);
  });
}

void dropout_backward(View dx, ConstView dy, ConstView mask, double rate) {
  if (dy.count() == 0) return;
  dispatch(dy.dtype(), [&](auto type) {
    using T = decltype(type);
    launch_kernel("dropout_backward", stream_of(dy), blocks_for(dy.count(), kThreads), kThreads, 0,
                  dropout_backward_kernel<T>, elements<T>(dx), elements<T>(dy),
                  elements<std::uint8_t>(mask), dy.count(),
                  static_cast<Accumulator<T>>(1 / (1 - rate)));
  });
}

}  // namespace aisc::cuda
