// Operations whose outputs depend on one element of each input: one pass over memory each, an
// access of 16 bytes of each tensor a thread.
//
// Bytes moved per element of `size` bytes: fill size; scale, relu, gelu, sigmoid 2 size; add
// and the backward of the last three 3 size; cast the sizes of both types. Share of a copy's
// bandwidth (./aisc bench gpu, BF16 on an H200): .97 to 1.02.
#include "common/ops/cuda/grid.h"
#include "common/ops/cuda/kernels.h"
#include "common/ops/cuda/numbers.h"

namespace aisc::cuda {
namespace {

// to[i] = f(from[i]), n elements a thread. `to` may be `from`.
template <int n, class To, class From, class F>
__global__ void __launch_bounds__(kThreads)
    map_kernel(To* to, const From* from, std::int64_t count, F f) {
  const std::int64_t begin = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * n;
  if (begin + n <= count) {
    Accumulator<From> x[n];
    load<n>(x, from + begin);
#pragma unroll
    for (int k = 0; k < n; ++k) x[k] = f(x[k]);
    store<n>(to + begin, x);
  } else {
    for (std::int64_t i = begin; i < count; ++i) to[i] = narrow<To>(f(widen(from[i])));
  }
}

// to[i] = f(a[i], b[i]). `to` may be a or b.
template <int n, class T, class F>
__global__ void __launch_bounds__(kThreads)
    map_pairs_kernel(T* to, const T* a, const T* b, std::int64_t count, F f) {
  const std::int64_t begin = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * n;
  if (begin + n <= count) {
    Accumulator<T> x[n], y[n];
    load<n>(x, a + begin);
    load<n>(y, b + begin);
#pragma unroll
    for (int k = 0; k < n; ++k) x[k] = f(x[k], y[k]);
    store<n>(to + begin, x);
  } else {
    for (std::int64_t i = begin; i < count; ++i) to[i] = narrow<T>(f(widen(a[i]), widen(b[i])));
  }
}

template <int n, class T>
__global__ void __launch_bounds__(kThreads) fill_kernel(T* to, std::int64_t count, T value) {
  const std::int64_t begin = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * n;
  if (begin + n <= count) {
    Neighbours<T, n> values;
#pragma unroll
    for (int k = 0; k < n; ++k) values.elements[k] = value;
    *reinterpret_cast<Neighbours<T, n>*>(to + begin) = values;
  } else {
    for (std::int64_t i = begin; i < count; ++i) to[i] = value;
  }
}

template <class F>
void map(const char* what, const View& y, const ConstView& x, F f) {
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    dispatch_width<T>(aligned(y.raw(), x.raw()), [&]<int n>() {
      launch_kernel(what, stream_of(x), blocks_for(x.count(), kThreads * n), kThreads, 0,
                    map_kernel<n, T, T, F>, elements<T>(y), elements<T>(x), x.count(), f);
    });
  });
}

template <class F>
void map(const char* what, const View& y, const ConstView& a, const ConstView& b, F f) {
  dispatch(y.dtype(), [&](auto type) {
    using T = decltype(type);
    dispatch_width<T>(aligned(y.raw(), a.raw(), b.raw()), [&]<int n>() {
      launch_kernel(what, stream_of(y), blocks_for(y.count(), kThreads * n), kThreads, 0,
                    map_pairs_kernel<n, T, F>, elements<T>(y), elements<T>(a), elements<T>(b),
                    y.count(), f);
    });
  });
}

struct Copied {
  template <class S>
  __device__ S operator()(S x) const {
    return x;
  }
};
struct Sum {
  template <class S>
  __device__ S operator()(S a, S b) const {
    return a + b;
  }
};
struct Scaled {
  double factor;
  template <class S>
  __device__ S operator()(S x) const {
    return x * static_cast<S>(factor);
  }
};
struct Relu {
  template <class S>
  __device__ S operator()(S x) const {
    return x < 0 ? S(0) : x;  // a NaN is not less than 0
  }
};
struct ReluBackward {
  template <class S>
  __device__ S operator()(S dy, S x) const {
    return x > 0 ? dy : S(0);
  }
};

// GELU in tanh's form is x s(2u) with the logistic function s, u = sqrt(2/pi) (x + 0.044715 x^3),
// since (1 + tanh(u)) / 2 = s(2u): without the difference of nearly equal numbers where x << 0.
constexpr double kCubic = 0.044715;
constexpr double kTwiceRoot = 2 * 0.79788456080286535588;  // 2 sqrt(2/pi)

struct TanhGelu {
  template <class S>
  __device__ S operator()(S x) const {
    const S twice_u = S(kTwiceRoot) * x * (S(kCubic) * x * x + S(1));
    return quotient(x, S(1) + exp_of(-twice_u));
  }
};

// With s = s(2u) and 1 - s = exp(-2u) s:  dy/dx = s + x s (1 - s) (2u)'. Beyond 10 the slope is 1
// or 0 to the last bit; there x^2 may overflow, and its product with 0 would be a NaN.
struct TanhGeluBackward {
  template <class S>
  __device__ S operator()(S dy, S x) const {
    const S square = x * x;
    const S twice_u = S(kTwiceRoot) * x * (S(kCubic) * square + S(1));
    const S slope = S(kTwiceRoot) * (S(3 * kCubic) * square + S(1));
    const S e = exp_of(-twice_u), s = quotient(S(1), S(1) + e);
    const S formula = s + x * slope * (e * s) * s;
    const S or_one = x > S(10) ? S(1) : formula;
    return dy * (x < S(-10) ? S(0) : or_one);
  }
};

// Phi(x) = (1 + erf(x / sqrt(2))) / 2 by the complement of erf, which does not cancel far below 0.
template <class S>
__device__ __forceinline__ S normal_below(S x) {
  return S(0.5) * erfc_of(S(-0.70710678118654752440) * x);
}
struct ErfGelu {
  template <class S>
  __device__ S operator()(S x) const {
    return x * normal_below(x);
  }
};
// By the product rule: Phi(x) + x exp(-x^2 / 2) / sqrt(2 pi).
struct ErfGeluBackward {
  template <class S>
  __device__ S operator()(S dy, S x) const {
    return dy * (normal_below(x) + x * (S(0.39894228040143267794) * exp_of(S(-0.5) * x * x)));
  }
};

// Far below 0 the exponential is infinite and the quotient 0, as it should be.
struct Sigmoid {
  template <class S>
  __device__ S operator()(S x) const {
    return quotient(S(1), S(1) + exp_of(-x));
  }
};
struct SigmoidBackward {
  template <class S>
  __device__ S operator()(S dy, S y) const {
    return dy * y * (S(1) - y);
  }
};

}  // namespace

void fill(View out, double value) {
  dispatch(out.dtype(), [&](auto type) {
    using T = decltype(type);
    dispatch_width<T>(aligned(out.raw()), [&]<int n>() {
      launch_kernel("fill", stream_of(out), blocks_for(out.count(), kThreads * n), kThreads, 0,
                    fill_kernel<n, T>, elements<T>(out), out.count(), T(value));
    });
  });
}

// The longer of the two types decides how many elements a thread has: its access is then 16 bytes,
// the other one's shorter.
void cast(View out, ConstView x) {
  dispatch(out.dtype(), [&](auto out_type) {
    dispatch(x.dtype(), [&](auto in_type) {
      using To = decltype(out_type);
      using From = decltype(in_type);
      using Longer = std::conditional_t<(sizeof(To) > sizeof(From)), To, From>;
      dispatch_width<Longer>(aligned(out.raw(), x.raw()), [&]<int n>() {
        launch_kernel("cast", stream_of(x), blocks_for(x.count(), kThreads * n), kThreads, 0,
                      map_kernel<n, To, From, Copied>, elements<To>(out), elements<From>(x),
                      x.count(), Copied{});
      });
    });
  });
}

void add(View out, ConstView a, ConstView b) { map("add", out, a, b, Sum{}); }
void scale(View out, ConstView x, double factor) { map("scale", out, x, Scaled{factor}); }
void relu(View y, ConstView x) { map("relu", y, x, Relu{}); }
void relu_backward(View dx, ConstView dy, ConstView x) {
  map("relu_backward", dx, dy, x, ReluBackward{});
}
void gelu(View y, ConstView x, ops::Gelu form) {
  if (form == ops::Gelu::Erf) return map("gelu", y, x, ErfGelu{});
  map("gelu", y, x, TanhGelu{});
}
void gelu_backward(View dx, ConstView dy, ConstView x, ops::Gelu form) {
  if (form == ops::Gelu::Erf) return map("gelu_backward", dx, dy, x, ErfGeluBackward{});
  map("gelu_backward", dx, dy, x, TanhGeluBackward{});
}
void sigmoid(View y, ConstView x) { map("sigmoid", y, x, Sigmoid{}); }
void sigmoid_backward(View dx, ConstView dy, ConstView y) {
  map("sigmoid_backward", dx, dy, y, SigmoidBackward{});
}

}  // namespace aisc::cuda
