// Cross entropy fused with softmax: the logits are read once forward, and once more backward, where
// the gradients may take their place. The probabilities are never stored.
//
// Bytes moved per logit of `size` bytes: cross_entropy size, cross_entropy_backward 2 size. Share
// of a copy's bandwidth (./aisc bench gpu, BF16 on an H200): .92 and .96.
#include "common/core/cuda/fault.h"
#include "common/ops/cuda/exponentials.h"
#include "common/ops/cuda/grid.h"
#include "common/ops/cuda/kernels.h"
#include "common/ops/cuda/reduce.h"

namespace aisc::cuda {
namespace {

constexpr int kRowThreads = 512;

// Classes from `begin` on are here, `here` of them, of `limit`.
struct Targets {
  const std::int32_t* targets;
  std::int64_t begin, here, limit;
};
struct Target {
  bool exists;
  std::int64_t column;  // -1: there is none, or it is not here
};

// The target of a row; none for one that is outside, which thread 0 reports.
__device__ __forceinline__ Target target_of(const Targets& all, std::int64_t row,
                                            const Report& report) {
  const std::int64_t target = all.targets[row], column = target - all.begin;
  const bool exists = target >= 0 && target < all.limit;
  if (!exists && target != -1 && threadIdx.x == 0)
    gpu::raise(report.fault, report.text, row, target, all.limit);
  return {exists, exists && column >= 0 && column < all.here ? column : -1};
}

// A block a row. With smoothing the row is read once more, out of cache.
template <int n, class T>
__global__ void __launch_bounds__(kRowThreads)
    cross_entropy_kernel(Accumulator<T>* losses, Accumulator<T>* log_sum_exp, const T* logits,
                         Targets targets, std::int64_t V, double smoothing, Report report) {
  using S = Accumulator<T>;
  const std::int64_t row = blockIdx.x;
  const T* values = logits + row * V;
  const auto all =
      exponentials_of<n, kRowThreads>(values, targets.here, static_cast<int>(threadIdx.x));
  const S lse = all.maximum + log_of(all.sum);
  S sum = 0;  // over the classes, of terms that are not below 0, so that it does not cancel
  if (smoothing > 0) {
    for (std::int64_t c = threadIdx.x; c < targets.here; c += kRowThreads)
      sum += lse - widen(values[c]);
    sum = reduce<kRowThreads>(sum, Add{});
  }
  if (threadIdx.x > 0) return;
  const std::int64_t target = target_of(targets, row, report).column;
  S loss = target < 0 ? S(0) : lse - widen(values[target]);
  if (smoothing > 0 && target >= 0)
    loss = static_cast<S>(1 - smoothing) * loss +
           static_cast<S>(smoothing) * (sum / static_cast<S>(targets.here));
  log_sum_exp[row] = lse;
  losses[row] = loss;
}

// What q, to which the loss is the cross-entropy, has at the target and at every other class.
template <class S>
struct Aims {
  S at_target, elsewhere;
};
template <class S>
Aims<S> aims_of(double smoothing, std::int64_t classes) {
  const S each = smoothing > 0 ? static_cast<S>(smoothing / static_cast<double>(classes)) : S(0);
  return {static_cast<S>(1 - smoothing) + each, each};
}

// A block a row. dlogits may be logits: each thread reads what it writes, and nothing else.
template <int n, class T>
__global__ void __launch_bounds__(kRowThreads)
    cross_entropy_backward_kernel(T* dlogits, const T* logits, const Accumulator<T>* log_sum_exp,
                                  Targets targets, std::int64_t V, Accumulator<T> factor,
                                  Aims<Accumulator<T>> aims, Report report) {
  using S = Accumulator<T>;
  const std::int64_t row = blockIdx.x;
  const Target target = target_of(targets, row, report);
  const S lse = log_sum_exp[row];
  const std::int64_t used = target.exists ? targets.here : 0;  // without a target all is padding
#pragma unroll 4
  for (std::int64_t c = std::int64_t{threadIdx.x} * n; c < V; c += kRowThreads * n) {
    S values[n];
    load<n>(values, logits + row * V + c);
#pragma unroll
    for (int k = 0; k < n; ++k) {
      const S probability = exp_of(values[k] - lse);
      const bool at_target = c + k == target.column;
      const S gradient = factor * (probability - (at_target ? aims.at_target : aims.elsewhere));
      values[k] = c + k < used ? gradient : S(0);
    }
    store<n>(dlogits + row * V + c, values);
  }
}

Targets targets_of(const ConstView& targets, std::int64_t classes, const ops::TablePart& part) {
  return {elements<std::int32_t>(targets), part.begin, classes, part.all == 0 ? classes : part.all};
}

template <class T>
bool rows_aligned(const void* pointer, std::int64_t V) {
  return aligned(pointer) && V % kWidth<T> == 0;
}

}  // namespace

void cross_entropy(View losses, View log_sum_exp, ConstView logits, ConstView targets,
                   std::int64_t classes, ops::TablePart part, double smoothing) {
  dispatch(logits.dtype(), [&](auto type) {
    using T = decltype(type);
    using S = Accumulator<T>;
    const std::int64_t N = logits.shape()[0], V = logits.shape()[1];
    const Report report{as_cuda(logits.device()).fault(),
                        "cross_entropy: target[{}] is {}, expected -1 <= target < {}"};
    dispatch_width<T>(rows_aligned<T>(logits.raw(), V), [&]<int n>() {
      launch_kernel("cross_entropy", stream_of(logits), static_cast<unsigned>(N), kRowThreads, 0,
                    cross_entropy_kernel<n, T>, elements<S>(losses), elements<S>(log_sum_exp),
                    elements<T>(logits), targets_of(targets, classes, part), V, smoothing, report);
    });
  });
}

void cross_entropy_backward(View dlogits, ConstView logits, ConstView log_sum_exp,
                            ConstView targets, std::int64_t classes, double factor,
                            ops::TablePart part, double smoothing) {
  dispatch(logits.dtype(), [&](auto type) {
    using T = decltype(type);
    using S = Accumulator<T>;
    const std::int64_t N = logits.shape()[0], V = logits.shape()[1];
    const Report report{as_cuda(logits.device()).fault(),
                        "cross_entropy_backward: target[{}] is {}, expected -1 <= target < {}"};
    const bool wide = rows_aligned<T>(logits.raw(), V) && aligned(dlogits.raw());
    dispatch_width<T>(wide, [&]<int n>() {
      launch_kernel("cross_entropy_backward", stream_of(logits), static_cast<unsigned>(N),
                    kRowThreads, 0, cross_entropy_backward_kernel<n, T>, elements<T>(dlogits),
                    elements<T>(logits), elements<S>(log_sum_exp),
                    targets_of(targets, classes, part), V, static_cast<S>(factor),
                    aims_of<S>(smoothing, classes), report);
    });
  });
}

}  // namespace aisc::cuda
