// One streaming pass over the state of an optimizer, and the norm that clipping needs.
//
// Bytes moved per element: adamw reads and writes the weight and two moments in F32, 6 * 4, reads
// the gradient and writes a short weight: 28 with one type, 30 for a short weight with a gradient
// in F32; sgd 2 * 4 for the weight, 2 * 4 with momentum, the gradient, 2 for a short weight;
// sum_of_squares the element's size. Share of a copy's bandwidth (./aisc bench gpu, BF16
// on an H200): adamw .99, sum_of_squares .71, the host's wait for it within.
#include <cmath>

#include "common/ops/cuda/grid.h"
#include "common/ops/cuda/kernels.h"
#include "common/ops/cuda/numbers.h"
#include "common/ops/cuda/reduce.h"

namespace aisc::cuda {
namespace {

// ---- sum of squares -----------------------------------------------------------------------------

constexpr int kSumThreads = 512;
constexpr std::int64_t kSumBlock = 16384;  // elements of one partial sum

// partials[block] = the sum of its elements' squares, in F64.
template <int n, class T>
__global__ void __launch_bounds__(kSumThreads)
    squares_kernel(double* partials, const T* x, std::int64_t count) {
  const std::int64_t first = std::int64_t{blockIdx.x} * kSumBlock;
  const std::int64_t last = first + kSumBlock < count ? first + kSumBlock : count;
  double sum = 0;
  const auto add = [&](double value) { sum += value * value; };
  std::int64_t i = first + threadIdx.x * n;
#pragma unroll 4
  for (; i + n <= last; i += kSumThreads * n) {
    Accumulator<T> values[n];
    load<n>(values, x + i);
#pragma unroll
    for (int k = 0; k < n; ++k) add(static_cast<double>(values[k]));
  }
  for (; i < last; ++i) add(static_cast<double>(widen(x[i])));  // fewer than n, of one thread
  sum = reduce<kSumThreads>(sum, Add{});
  if (threadIdx.x == 0) partials[blockIdx.x] = sum;
}

__global__ void __launch_bounds__(kSumThreads)
    sum_kernel(double* total, const double* partials, std::int64_t count) {
  double sum = 0;
#pragma unroll 4
  for (std::int64_t i = threadIdx.x; i < count; i += kSumThreads) sum += partials[i];
  sum = reduce<kSumThreads>(sum, Add{});
  if (threadIdx.x == 0) *total = sum;
}

// ---- steps --------------------------------------------------------------------------------------

// The state of n weights. `weight` is the rounded copy of a short type; else `full` is the weight.
template <class T, class G>
struct Slice {
  using S = Accumulator<T>;
  static constexpr bool kHasMaster = sizeof(T) < sizeof(S);

  T* weight;
  S* full;
  const G* gradient;
  std::int64_t count;

  Slice(const View& weight_, const View& master, const ConstView& gradient_)
      : weight(elements<T>(weight_)),
        full(master ? elements<S>(master) : elements<S>(weight_)),
        gradient(elements<G>(gradient_)),
        count(weight_.count()) {}
};

template <class S>
struct AdamWNumbers {
  S beta1, rest1, beta2, rest2, rate, epsilon, keep, scale;
};

template <int n, class T, class G>
__global__ void __launch_bounds__(kThreads)
    adamw_kernel(Slice<T, G> slice, Accumulator<T>* m, Accumulator<T>* v,
                 AdamWNumbers<Accumulator<T>> number) {
  using S = Accumulator<T>;
  const std::int64_t begin = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * n;
  const auto update = [&](S& weight, S& first, S& second, S gradient) {
    const S grad = number.scale * gradient;
    first = number.beta1 * first + number.rest1 * grad;
    second = number.beta2 * second + number.rest2 * grad * grad;
    weight = number.keep * weight - number.rate * first / (root_of(second) + number.epsilon);
  };
  // All loads are asked for before the first is needed, n elements each; the slice's last thread
  // may have fewer than n, which it takes one by one.
  if (begin + n <= slice.count) {
    S weights[n], means[n], squares[n];
    Accumulator<G> gradients[n];
    load<n>(gradients, slice.gradient + begin);
    load<n>(weights, slice.full + begin);
    load<n>(means, m + begin);
    load<n>(squares, v + begin);
#pragma unroll
    for (int k = 0; k < n; ++k)
      update(weights[k], means[k], squares[k], static_cast<S>(gradients[k]));
    store<n>(m + begin, means);
    store<n>(v + begin, squares);
    store<n>(slice.full + begin, weights);
    if constexpr (Slice<T, G>::kHasMaster) store<n>(slice.weight + begin, weights);
  } else {
    for (std::int64_t i = begin; i < slice.count; ++i) {
      update(slice.full[i], m[i], v[i], static_cast<S>(widen(slice.gradient[i])));
      if constexpr (Slice<T, G>::kHasMaster) slice.weight[i] = narrow<T>(slice.full[i]);
    }
  }
}

template <class S>
struct SgdNumbers {
  S rate, momentum, decay, scale;
};

// `velocity` may be null.
template <int n, class T, class G>
__global__ void __launch_bounds__(kThreads)
    sgd_kernel(Slice<T, G> slice, Accumulator<T>* velocity, SgdNumbers<Accumulator<T>> number) {
  using S = Accumulator<T>;
  const std::int64_t begin = (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * n;
  const auto update = [&](S& weight, S& speed, S gradient) {
    const S move = number.scale * gradient + number.decay * weight;
    speed = velocity ? move + number.momentum * speed : move;
    weight -= number.rate * speed;
  };
  if (begin + n <= slice.count) {
    S weights[n], speeds[n] = {};
    Accumulator<G> gradients[n];
    load<n>(gradients, slice.gradient + begin);
    load<n>(weights, slice.full + begin);
    if (velocity) load<n>(speeds, velocity + begin);
#pragma unroll
    for (int k = 0; k < n; ++k) update(weights[k], speeds[k], static_cast<S>(gradients[k]));
    if (velocity) store<n>(velocity + begin, speeds);
    store<n>(slice.full + begin, weights);
    if constexpr (Slice<T, G>::kHasMaster) store<n>(slice.weight + begin, weights);
  } else {
    for (std::int64_t i = begin; i < slice.count; ++i) {
      S speed = velocity ? velocity[i] : S(0);
      update(slice.full[i], speed, static_cast<S>(widen(slice.gradient[i])));
      if (velocity) velocity[i] = speed;
      if constexpr (Slice<T, G>::kHasMaster) slice.weight[i] = narrow<T>(slice.full[i]);
    }
  }
}

}  // namespace

// The partial sums have fixed bounds and are added in a fixed order.
double sum_of_squares(ConstView x) {
  const std::int64_t blocks = pieces(x.count(), kSumBlock);
  const Tensor sums({blocks + 1}, DType::F64, x.device(), Purpose::Workspace);
  auto* total = elements<double>(sums.view());
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    dispatch_width<T>(aligned(x.raw()), [&]<int n>() {
      launch_kernel("sum_of_squares", stream_of(x), static_cast<unsigned>(blocks), kSumThreads, 0,
                    squares_kernel<n, T>, total + 1, elements<T>(x), x.count());
    });
  });
  launch_kernel("sum_of_squares", stream_of(x), 1, kSumThreads, 0, sum_kernel, total, total + 1,
                blocks);
  // Here the host waits: who clips must know the norm before the update is asked for.
  CpuDevice host;
  const Tensor result({1}, DType::F64, host);
  x.device().copy(result, sums.view().flat(0, 1));
  return result.values<double>()[0];
}

// With the bias corrections folded into two numbers:
//   weight -= rate' m / (sqrt(v) + epsilon'),
//   rate' = rate sqrt(c2) / c1,  epsilon' = epsilon sqrt(c2),
// where c1 = 1 - beta1^step and c2 = 1 - beta2^step.
void adamw(View weight, View master, View m, View v, ConstView gradient,
           const ops::AdamWStep& step) {
  dispatch_or_f32(weight.dtype(), gradient.dtype(), [&](auto type, auto gradient_type) {
    using T = decltype(type);
    using S = Accumulator<T>;
    using G = decltype(gradient_type);
    const double correction1 = 1 - std::pow(step.beta1, static_cast<double>(step.step));
    const double correction2 = std::sqrt(1 - std::pow(step.beta2, static_cast<double>(step.step)));
    const AdamWNumbers<S> numbers{
        static_cast<S>(step.beta1),
        static_cast<S>(1 - step.beta1),
        static_cast<S>(step.beta2),
        static_cast<S>(1 - step.beta2),
        static_cast<S>(step.learning_rate * correction2 / correction1),
        static_cast<S>(step.epsilon * correction2),
        static_cast<S>(1 - step.learning_rate * step.weight_decay),
        static_cast<S>(step.gradient_scale),
    };
    const Slice<T, G> slice(weight, master, gradient);
    const bool wide = aligned(slice.weight, slice.full, slice.gradient, m.raw(), v.raw());
    dispatch_width<S>(wide, [&]<int n>() {
      launch_kernel("adamw", stream_of(weight), blocks_for(slice.count, kThreads * n), kThreads, 0,
                    adamw_kernel<n, T, G>, slice, elements<S>(m), elements<S>(v), numbers);
    });
  });
}

void sgd(View weight, View master, View velocity, ConstView gradient, const ops::SgdStep& step) {
  dispatch_or_f32(weight.dtype(), gradient.dtype(), [&](auto type, auto gradient_type) {
    using T = decltype(type);
    using S = Accumulator<T>;
    using G = decltype(gradient_type);
    const SgdNumbers<S> numbers{static_cast<S>(step.learning_rate), static_cast<S>(step.momentum),
                                static_cast<S>(step.weight_decay),
                                static_cast<S>(step.gradient_scale)};
    const Slice<T, G> slice(weight, master, gradient);
    S* speed = velocity ? elements<S>(velocity) : nullptr;
    const bool wide = aligned(slice.weight, slice.full, slice.gradient, speed);
    dispatch_width<S>(wide, [&]<int n>() {
      launch_kernel("sgd", stream_of(weight), blocks_for(slice.count, kThreads * n), kThreads, 0,
                    sgd_kernel<n, T, G>, slice, speed, numbers);
    });
  });
}

}  // namespace aisc::cuda
