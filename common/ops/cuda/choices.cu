// Operations that choose columns of each row: the largest, and those that ids name. A thread an
// element of the output, or of the row that is chosen from: no sum or choice is shared, so that the
// results are the CPU's to the bit.
//
// Work, for rows of E columns of which k are chosen: top_k counts, for each number, those that come
// before it: E^2 comparisons a row, less where k are found early; take_columns_backward looks
// through k ids for each column. Both read what a warp's threads all read, from cache. Share of
// the machine's rates: not measured yet.
#include "common/core/cuda/fault.h"
#include "common/ops/cuda/grid.h"
#include "common/ops/cuda/kernels.h"

namespace aisc::cuda {
namespace {

// Is x, of column a, chosen before y, of column b? The larger number is, of equal ones the lower
// column; a NaN comes after all numbers.
template <class S>
__device__ __forceinline__ bool comes_before(S x, std::int64_t a, S y, std::int64_t b) {
  if (x > y || y > x) return x > y;
  const bool x_is_nan = x != x, y_is_nan = y != y;
  return x_is_nan == y_is_nan ? a < b : y_is_nan;
}

// A number's place is how many come before it: all places of a row differ, and no thread needs to
// know what another one found.
template <class T>
__global__ void __launch_bounds__(kThreads)
    top_k_kernel(std::int32_t* ids, const T* x, std::int64_t count, std::int64_t E,
                 std::int64_t k) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const std::int64_t n = i / E, column = i % E;
  const T* row = x + n * E;
  const Accumulator<T> mine = widen(row[column]);
  std::int64_t place = 0;
  for (std::int64_t c = 0; c < E && place < k; ++c)
    if (comes_before(widen(row[c]), c, mine, column)) ++place;
  if (place < k) ids[n * k + place] = static_cast<std::int32_t>(column);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    take_columns_kernel(T* values, const T* x, const std::int32_t* ids, std::int64_t count,
                        std::int64_t E, std::int64_t k, Report report) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const std::int32_t id = ids[i];
  if (id < -1 || id >= E) gpu::raise(report.fault, report.text, i, id, E);
  values[i] = id >= 0 && id < E ? x[i / k * E + id] : narrow<T>(Accumulator<T>(0));
}

// A column adds up what the row's ids say is its own. The first of a row looks at the ids, too.
template <class Out, class T>
__global__ void __launch_bounds__(kThreads)
    take_columns_backward_kernel(Out* dx, const T* dvalues, const std::int32_t* ids,
                                 std::int64_t count, std::int64_t E, std::int64_t k,
                                 bool accumulate, Report report) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const std::int64_t column = i % E, begin = i / E * k;
  Accumulator<T> sum = 0;
  if (accumulate) sum = static_cast<Accumulator<T>>(widen(dx[i]));
  for (std::int64_t j = begin; j < begin + k; ++j) {
    const std::int32_t id = ids[j];
    if (id == column) sum += widen(dvalues[j]);
    if (column == 0 && (id < -1 || id >= E)) gpu::raise(report.fault, report.text, j, id, E);
  }
  dx[i] = narrow<Out>(sum);
}

}  // namespace

void top_k(View ids, ConstView x) {
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    launch_kernel("top_k", stream_of(x), blocks_for(x.count(), kThreads), kThreads, 0,
                  top_k_kernel<T>, elements<std::int32_t>(ids), elements<T>(x), x.count(),
                  x.shape()[1], ids.shape()[1]);
  });
}

void take_columns(View values, ConstView x, ConstView ids) {
  const Report report{as_cuda(x.device()).fault(),
                      "take_columns: id[{}] is {}, expected -1 <= id < {}"};
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    launch_kernel("take_columns", stream_of(x), blocks_for(ids.count(), kThreads), kThreads, 0,
                  take_columns_kernel<T>, elements<T>(values), elements<T>(x),
                  elements<std::int32_t>(ids), ids.count(), x.shape()[1], ids.shape()[1], report);
  });
}

void take_columns_backward(View dx, ConstView dvalues, ConstView ids, Into into) {
  const Report report{as_cuda(dx.device()).fault(),
                      "take_columns_backward: id[{}] is {}, expected -1 <= id < {}"};
  dispatch_or_f32(dvalues.dtype(), dx.dtype(), [&](auto type, auto dx_type) {
    using T = decltype(type);
    using Out = decltype(dx_type);
    launch_kernel("take_columns_backward", stream_of(dx), blocks_for(dx.count(), kThreads),
                  kThreads, 0, take_columns_backward_kernel<Out, T>, elements<Out>(dx),
                  elements<T>(dvalues), elements<std::int32_t>(ids), dx.count(), dx.shape()[1],
                  ids.shape()[1], into == Into::Accumulate, report);
  });
}

}  // namespace aisc::cuda
