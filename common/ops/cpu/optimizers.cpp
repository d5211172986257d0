// One streaming pass over the state of an optimizer, and the norm that clipping needs.
#include <cmath>

#include "common/ops/cpu/kernels.h"
#include "common/ops/cpu/parallel.h"
#include "common/ops/cpu/reduce.h"
#include "common/ops/cpu/vector_math.h"

namespace aisc::cpu {
namespace {

constexpr std::int64_t kSumBlock = 4096;  // elements of one partial sum
constexpr std::int64_t kStep = 256;       // elements for which memory is asked at a time
constexpr std::int64_t kAheadBytes = 8192, kCacheLineBytes = 64;

// One stream of loads alone does not fill the path to memory. Asking for its lines two pages ahead
// makes the sum half as fast again.
template <class T>
double block_squares(const T* x, std::int64_t count) {
  double sum = 0;
  for (std::int64_t begin = 0; begin < count; begin += kStep) {
    const T* step = x + begin;
    const char* ahead = reinterpret_cast<const char*>(step) + kAheadBytes;
    for (std::size_t byte = 0; byte < kStep * sizeof(T); byte += kCacheLineBytes)
      __builtin_prefetch(ahead + byte);
    sum += sum_of<double>(std::min(kStep, count - begin), [=](std::int64_t i) {
      const double v = static_cast<double>(widen(step[i]));
      return v * v;
    });
  }
  return sum;
}

// The full-precision weight: the master copy where there is one, else the weight itself.
template <class T>
Accumulator<T>* full_weight(const View& weight, const View& master) {
  return master ? master.data<Accumulator<T>>() : weight.data<Accumulator<T>>();
}

}  // namespace

double sum_of_squares(ConstView x) {
  const std::int64_t count = x.count(), blocks = (count + kSumBlock - 1) / kSumBlock;
  const Tensor partials({blocks}, DType::F64, x.device(), Purpose::Workspace);
  double* partial = partials.data<double>();
  dispatch(x.dtype(), [&](auto type) {
    const auto* values = x.data<decltype(type)>();
    parallel_rows(blocks, kSumBlock, [=](std::int64_t block) {
      const std::int64_t begin = block * kSumBlock;
      partial[block] = block_squares(values + begin, std::min(kSumBlock, count - begin));
    });
  });
  // In one order, whatever threads did: equal runs clip by equal numbers.
  double sum = 0;
  for (std::int64_t block = 0; block < blocks; ++block) sum += partial[block];
  return sum;
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
    T* short_weights = weight.data<T>();
    S *w = full_weight<T>(weight, master), *first = m.data<S>(), *second = v.data<S>();
    const G* g = gradient.data<G>();
    const double correction1 = 1 - std::pow(step.beta1, static_cast<double>(step.step));
    const double correction2 = std::sqrt(1 - std::pow(step.beta2, static_cast<double>(step.step)));
    const S beta1 = static_cast<S>(step.beta1), beta2 = static_cast<S>(step.beta2);
    const S rest1 = static_cast<S>(1 - step.beta1), rest2 = static_cast<S>(1 - step.beta2);
    const S rate = static_cast<S>(step.learning_rate * correction2 / correction1);
    const S epsilon = static_cast<S>(step.epsilon * correction2);
    const S keep = static_cast<S>(1 - step.learning_rate * step.weight_decay);
    const S scale = static_cast<S>(step.gradient_scale);
    parallel_elements(weight.count(), [=](std::int64_t begin, std::int64_t end) {
    // One pass: gradient and three states are read, the states and the weight written, nothing
    // kept between elements; so the time is that of the bytes.
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) {
        const S grad = scale * static_cast<S>(widen(g[i]));
        const S mean = beta1 * first[i] + rest1 * grad;
        const S square = beta2 * second[i] + rest2 * grad * grad;
        const S updated = keep * w[i] - rate * mean / (std::sqrt(square) + epsilon);
        first[i] = mean;
        second[i] = square;
        w[i] = updated;
        if constexpr (sizeof(T) < sizeof(S)) short_weights[i] = narrow<T>(updated);
      }
    });
  });
}

void sgd(View weight, View master, View velocity, ConstView gradient, const ops::SgdStep& step) {
  dispatch_or_f32(weight.dtype(), gradient.dtype(), [&](auto type, auto gradient_type) {
    using T = decltype(type);
    using S = Accumulator<T>;
    using G = decltype(gradient_type);
    T* short_weights = weight.data<T>();
    S* w = full_weight<T>(weight, master);
    S* speed = velocity ? velocity.data<S>() : nullptr;
    const G* g = gradient.data<G>();
    const S rate = static_cast<S>(step.learning_rate), momentum = static_cast<S>(step.momentum);
    const S decay = static_cast<S>(step.weight_decay), scale = static_cast<S>(step.gradient_scale);
    parallel_elements(weight.count(), [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i) {
        S move = scale * static_cast<S>(widen(g[i])) + decay * w[i];
        if (speed) {
          move += momentum * speed[i];
          speed[i] = move;
        }
        const S updated = w[i] - rate * move;
        w[i] = updated;
        if constexpr (sizeof(T) < sizeof(S)) short_weights[i] = narrow<T>(updated);
      }
    });
  });
}

}  // namespace aisc::cpu
