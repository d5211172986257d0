// Operations whose outputs depend on one element of each input: one pass over memory each.
#include <algorithm>
#include <type_traits>

#include "common/ops/cpu/kernels.h"
#include "common/ops/cpu/parallel.h"
#include "common/ops/cpu/vector_math.h"

namespace aisc::cpu {
namespace {

// y[i] = f(x[i]), where f works in the type that sums are kept in. y may be x.
template <class F>
void map(const View& y, const ConstView& x, F f) {
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* from = x.data<T>();
    T* to = y.data<T>();
    parallel_elements(x.count(), [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) to[i] = narrow<T>(f(widen(from[i])));
    });
  });
}

// y[i] = f(a[i], b[i]). y may be a or b.
template <class F>
void map(const View& y, const ConstView& a, const ConstView& b, F f) {
  dispatch(y.dtype(), [&](auto type) {
    using T = decltype(type);
    const T *left = a.data<T>(), *right = b.data<T>();
    T* to = y.data<T>();
    parallel_elements(y.count(), [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i)
        to[i] = narrow<T>(f(widen(left[i]), widen(right[i])));
    });
  });
}

template <class To, class From>
[[gnu::always_inline]] inline To converted(From x) {
  if constexpr (std::is_same_v<From, double>)
    return static_cast<To>(x);  // by way of F32 it would be rounded twice
  else
    return narrow<To>(widen(x));
}

// GELU in tanh's form is x s(2u) with the logistic function s, u = sqrt(2/pi) (x + 0.044715 x^3),
// since (1 + tanh(u)) / 2 = s(2u): without the difference of nearly equal numbers where x << 0.
constexpr double kCubic = 0.044715;
constexpr double kTwiceRoot = 2 * 0.79788456080286535588;  // 2 sqrt(2/pi)

}  // namespace

void fill(View out, double value) {
  dispatch(out.dtype(), [&](auto type) {
    using T = decltype(type);
    T* to = out.data<T>();
    const T element = T(value);
    parallel_elements(out.count(), [=](std::int64_t begin, std::int64_t end) {
      std::fill(to + begin, to + end, element);
    });
  });
}

void cast(View out, ConstView x) {
  dispatch(out.dtype(), [&](auto out_type) {
    dispatch(x.dtype(), [&](auto in_type) {
      using To = decltype(out_type);
      using From = decltype(in_type);
      const From* from = x.data<From>();
      To* to = out.data<To>();
      parallel_elements(x.count(), [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
        for (std::int64_t i = begin; i < end; ++i) to[i] = converted<To>(from[i]);
      });
    });
  });
}

void add(View out, ConstView a, ConstView b) {
  map(out, a, b, [](auto x, auto y) { return x + y; });
}

void scale(View out, ConstView x, double factor) {
  map(out, x, [factor](auto v) { return v * static_cast<decltype(v)>(factor); });
}

void relu(View y, ConstView x) {
  map(y, x, [](auto v) { return v < 0 ? decltype(v)(0) : v; });  // a NaN is not less than 0
}

void relu_backward(View dx, ConstView dy, ConstView x) {
  map(dx, dy, x, [](auto d, auto v) { return v > 0 ? d : decltype(d)(0); });
}

void gelu(View y, ConstView x, ops::Gelu form) {
  if (form == ops::Gelu::Erf) return map(y, x, [](auto v) { return v * normal_below(v); });
  map(y, x, [](auto v) {
    using S = decltype(v);
    const S twice_u = S(kTwiceRoot) * v * (S(kCubic) * v * v + S(1));
    return v / (S(1) + vector_exp(-twice_u));
  });
}

// By the product rule Phi(x) + x phi(x), phi = Phi'. In tanh's form, with s = s(2u) and 1 - s =
// exp(-2u) s:  dy/dx = s + x s (1 - s) (2u)'. Beyond 10 the slope is 1 or 0 to the last bit; there
// x^2 may overflow, and its product with 0 would be a NaN.
void gelu_backward(View dx, ConstView dy, ConstView x, ops::Gelu form) {
  if (form == ops::Gelu::Erf)
    return map(dx, dy, x,
               [](auto d, auto v) { return d * (normal_below(v) + v * normal_density(v)); });
  map(dx, dy, x, [](auto d, auto v) {
    using S = decltype(v);
    const S square = v * v;
    const S twice_u = S(kTwiceRoot) * v * (S(kCubic) * square + S(1));
    const S slope = S(kTwiceRoot) * (S(3 * kCubic) * square + S(1));
    const S e = vector_exp(-twice_u), s = S(1) / (S(1) + e);
    const S formula = s + v * slope * (e * s) * s;
    const S or_one = v > S(10) ? S(1) : formula;
    return d * (v < S(-10) ? S(0) : or_one);
  });
}

// Far below 0 the exponential is infinite and the quotient 0, as it should be.
void sigmoid(View y, ConstView x) {
  map(y, x, [](auto v) { return decltype(v)(1) / (decltype(v)(1) + vector_exp(-v)); });
}

void sigmoid_backward(View dx, ConstView dy, ConstView y) {
  map(dx, dy, y, [](auto d, auto s) { return d * s * (decltype(s)(1) - s); });
}

}  // namespace aisc::cpu
