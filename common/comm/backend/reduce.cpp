// Reductions in host memory: one template per shape of the loop, one dispatch per call. The loops
// are `omp simd`: an output is an input or apart from all of them, so elements do not depend on
// each other.
#include "common/comm/backend/reduce.h"

#include <algorithm>
#include <functional>
#include <type_traits>

#include "common/core/dtype.h"

namespace aisc {
namespace {

// What elements of T are computed in: themselves, but F32 for the floating types shorter than it.
template <class T>
auto wide_of(T) {
  if constexpr (std::is_integral_v<T>)
    return T{};
  else
    return Accumulator<T>{};
}
template <class T>
using Wide = decltype(wide_of(T{}));

// Integers wrap round: sums and products are those of the unsigned type, which C++ lets wrap.
template <class Op>
struct Wrapping {
  template <class W>
  W operator()(W a, W b) const {
    if constexpr (std::is_integral_v<W>) {
      using U = std::make_unsigned_t<W>;
      return static_cast<W>(Op()(static_cast<U>(a), static_cast<U>(b)));
    } else {
      return Op()(a, b);
    }
  }
};
using Sum = Wrapping<std::plus<>>;
using Product = Wrapping<std::multiplies<>>;
// A NaN on either side is the result: a NaN b follows from the comparison that fails, a NaN a is
// the value that is not itself. Two selections, no branch.
struct Min {
  template <class W>
  W operator()(W a, W b) const {
    const W less = a < b ? a : b;
    return a != a ? a : less;
  }
};
struct Max {
  template <class W>
  W operator()(W a, W b) const {
    const W more = a > b ? a : b;
    return a != a ? a : more;
  }
};

template <class T>
Wide<T> load(const T& x) {
  return static_cast<Wide<T>>(x);
}
template <class T>
void store(T& to, Wide<T> value) {
  if constexpr (requires { to.bits; })
    to.bits = T(value).bits;  // GCC vectorises the copy of a number, not that of a struct
  else
    to = static_cast<T>(value);
}

template <class T, class Op>
void into(T* to, const T* from, std::int64_t count, Op op) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) store(to[i], op(load(to[i]), load(from[i])));
}

// Two inputs, one output or two (x may be y): the sum of two ranks needs no tile, each element is
// read from both and written at once.
template <class T, class Op>
void all_of_two(const T* a, const T* b, T* x, T* y, std::int64_t count, Op op) {
#pragma omp simd
  for (std::int64_t i = 0; i < count; ++i) {
    const Wide<T> value = op(load(a[i]), load(b[i]));
    store(x[i], value);
    store(y[i], value);
  }
}

// Any number of inputs and outputs: a tile collects the inputs, then goes to every output. Memory
// is fastest with several streams at a time, hence N inputs in one loop, in order.
template <int N, class T, class Op>
void collect(Wide<T>* tile, std::span<const void* const> ins, std::int64_t begin, std::int64_t n,
             Op op) {
  const T* in[N];
  for (std::size_t j = 0; j < N; ++j) in[j] = static_cast<const T*>(ins[j]) + begin;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    Wide<T> value = tile[i];
    for (int j = 0; j < N; ++j) value = op(value, load(in[j][i]));
    tile[i] = value;
  }
}

template <int N, class T>
void spread(const Wide<T>* tile, std::span<void* const> outs, std::int64_t begin, std::int64_t n) {
  T* out[N];
  for (std::size_t j = 0; j < N; ++j) out[j] = static_cast<T*>(outs[j]) + begin;
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i)
    for (int j = 0; j < N; ++j) store(out[j][i], tile[i]);
}

// Calls f(N, the next N of `pointers`) for N 4 as often as possible, then 2 and 1.
template <class Pointer, class F>
void by_four(std::span<Pointer> pointers, F&& f) {
  for (; pointers.size() >= 4; pointers = pointers.subspan(4))
    f(std::integral_constant<int, 4>{}, pointers);
  if (pointers.size() >= 2) f(std::integral_constant<int, 2>{}, pointers);
  if (pointers.size() % 2 == 1) f(std::integral_constant<int, 1>{}, pointers.last(1));
}

// Short, so that all streams advance side by side: 8 buffers of 64 MiB take 1.7 times as long with
// tiles of 4096.
constexpr std::size_t kTileBytes = 256;

template <class T, class Op>
void all(std::span<const void* const> ins, std::span<void* const> outs, std::int64_t count, Op op) {
  using W = Wide<T>;
  constexpr std::int64_t kTile = kTileBytes / sizeof(W);
  alignas(64) W tile[kTile];
  // The tile holds the first input, then what `collect` adds to it, group by group in the inputs'
  // order: the same bits as adding them one by one.
  for (std::int64_t begin = 0; begin < count; begin += kTile) {
    const std::int64_t n = std::min(kTile, count - begin);
    const T* first = static_cast<const T*>(ins[0]) + begin;
    for (std::int64_t i = 0; i < n; ++i) tile[i] = load(first[i]);
    by_four(ins.subspan(1),
            [&](auto width, auto group) { collect<width, T>(tile, group, begin, n, op); });
    by_four(outs, [&](auto width, auto group) { spread<width, T>(tile, group, begin, n); });
  }
}

template <class F>
void with_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::I64:
      return f(std::int64_t{});
    case DType::I32:
      return f(std::int32_t{});
    case DType::U8:
      return f(std::uint8_t{});
    default:
      return dispatch(dtype, f);
  }
}

// Calls f(T{}, Op{}).
template <class F>
void with_type_and_op(DType dtype, ReduceOp op, F&& f) {
  with_type(dtype, [&]<class T>(T zero) {
    switch (op) {
      case ReduceOp::Sum:
        return f(zero, Sum{});
      case ReduceOp::Product:
        return f(zero, Product{});
      case ReduceOp::Min:
        return f(zero, Min{});
      case ReduceOp::Max:
        return f(zero, Max{});
    }
  });
}

}  // namespace

void reduce_into(void* to, const void* from, std::int64_t count, DType dtype, ReduceOp op) {
  with_type_and_op(dtype, op, [&]<class T>(T, auto apply) {
    into(static_cast<T*>(to), static_cast<const T*>(from), count, apply);
  });
}

void reduce_all(std::span<const void* const> ins, std::span<void* const> outs, std::int64_t count,
                DType dtype, ReduceOp op) {
  with_type_and_op(dtype, op, [&]<class T>(T, auto apply) {
    if (ins.size() == 2 && (outs.size() == 1 || outs.size() == 2))
      all_of_two(static_cast<const T*>(ins[0]), static_cast<const T*>(ins[1]),
                 static_cast<T*>(outs.front()), static_cast<T*>(outs.back()), count, apply);
    else
      all<T>(ins, outs, count, apply);
  });
}

}  // namespace aisc
