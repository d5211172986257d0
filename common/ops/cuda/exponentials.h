// Softmax's sum in one pass over a row ("online": Milakov and Gimelshein, 2018), by the threads of
// a row together; and how the threads of a block are shared out among rows.
#pragma once

#include "common/ops/cuda/grid.h"
#include "common/ops/cuda/reduce.h"

namespace aisc::cuda {

// A row has `threads` threads: a warp, of which a block has several, or the whole block.
template <int threads>
struct RowThreads {
  static constexpr int kBlock = threads == 32 ? kThreads : threads;
  static constexpr int kRows = kBlock / threads;  // of a block

  static __device__ __forceinline__ std::int64_t row() {
    return std::int64_t{blockIdx.x} * kRows + threadIdx.x / threads;
  }
  static __device__ __forceinline__ int index() { return static_cast<int>(threadIdx.x % threads); }
};

// The maximum of some numbers and the sum of the exponentials of their distances to it.
template <class S>
struct Exponentials {
  S maximum = minus_infinity<S>(), sum = 0;

  // As long as all are minus infinity, any finite number will do: their exponentials are 0.
  __device__ __forceinline__ S shift() const {
    return maximum == minus_infinity<S>() ? S(0) : maximum;
  }

  template <int n>
  __device__ __forceinline__ void add(const S (&values)[n]) {
    S top = maximum;
#pragma unroll
    for (int k = 0; k < n; ++k) top = larger(top, values[k]);
    if (top > maximum) {
      sum *= exp_of(maximum - top);
      maximum = top;
    }
    const S from = shift();
#pragma unroll
    for (int k = 0; k < n; ++k) sum += exp_of(values[k] - from);
  }

  // What the row's threads have, together; each gets all of it.
  template <int threads>
  __device__ __forceinline__ void join() {
    const S mine = maximum;
    maximum = reduce<threads>(maximum, Larger{});
    sum = reduce<threads>(sum * exp_of(mine - shift()), Add{});
  }
};

// All of a row's first `count` elements; thread `index` of `threads`. Rows are aligned for n.
template <int n, int threads, class T>
__device__ __forceinline__ Exponentials<Accumulator<T>> exponentials_of(const T* row,
                                                                        std::int64_t count,
                                                                        int index) {
  Exponentials<Accumulator<T>> all;
  std::int64_t i = std::int64_t{index} * n;
  Neighbours<T, n> next = {};
  bool more = i + n <= count;
  if (more) next = neighbours<n>(row + i);
  while (more) {  // the next elements are on their way while these are added
    const Neighbours<T, n> now = next;
    i += threads * n;
    more = i + n <= count;
    if (more) next = neighbours<n>(row + i);
    Accumulator<T> values[n];
    widen_all<n>(values, now);
    all.add(values);
  }
  for (; i < count; ++i) {  // fewer than n, of one thread
    const Accumulator<T> value[1] = {widen(row[i])};
    all.add(value);
  }
  all.template join<threads>();
  return all;
}

}  // namespace aisc::cuda
