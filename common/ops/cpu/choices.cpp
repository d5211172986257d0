// Operations that choose columns of each row: the largest, and those that ids name.
#include <algorithm>
#include <cstdint>
#include <numeric>

#include "common/ops/cpu/check_range.h"
#include "common/ops/cpu/kernels.h"
#include "common/ops/cpu/parallel.h"
#include "common/ops/cpu/vector_math.h"

namespace aisc::cpu {
namespace {

// Is column a of a row chosen before column b? The larger number is, of equal ones the lower
// column; a NaN comes after all numbers.
template <class T>
struct Before {
  bool operator()(std::int32_t a, std::int32_t b) const {
    const auto x = widen(row[a]), y = widen(row[b]);
    if (x > y || y > x) return x > y;
    const bool x_is_nan = x != x, y_is_nan = y != y;
    return x_is_nan == y_is_nan ? a < b : y_is_nan;
  }
  const T* row;
};

}  // namespace

// The best k so far are a heap with the worst of them at its front; a column that comes before it
// takes its place. O(E log k) a row, in no memory but that of the ids.
void top_k(View ids, ConstView x) {
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const std::int64_t E = x.shape()[1], k = ids.shape()[1];
    const T* rows = x.data<T>();
    std::int32_t* to = ids.data<std::int32_t>();
    parallel_rows(x.shape()[0], E, [=](std::int64_t n) {
      const Before<T> before{rows + n * E};
      std::int32_t *const first = to + n * k, *const last = first + k;
      std::iota(first, last, 0);
      std::make_heap(first, last, before);
      for (auto c = static_cast<std::int32_t>(k); c < E; ++c) {
        if (!before(c, *first)) continue;
        std::pop_heap(first, last, before);
        last[-1] = c;
        std::push_heap(first, last, before);
      }
      std::sort_heap(first, last, before);
    });
  });
}

void take_columns(View values, ConstView x, ConstView ids) {
  const std::int64_t E = x.shape()[1], k = ids.shape()[1];
  check_range("take_columns", "id", ids, -1, E);
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    const T* rows = x.data<T>();
    const std::int32_t* id = ids.data<std::int32_t>();
    T* to = values.data<T>();
    parallel_rows(x.shape()[0], k, [=](std::int64_t n) {
      for (std::int64_t i = n * k; i < (n + 1) * k; ++i)
        to[i] = id[i] < 0 ? T{} : rows[n * E + id[i]];
    });
  });
}

// A thread's sums have a place for every column. Of a row only the columns that are named are
// written, added to, and read.
void take_columns_backward(View dx, ConstView dvalues, ConstView ids, Into into) {
  const std::int64_t E = dx.shape()[1], k = ids.shape()[1];
  check_range("take_columns_backward", "id", ids, -1, E);
  dispatch_or_f32(dvalues.dtype(), dx.dtype(), [&](auto type, auto dx_type) {
    using T = decltype(type);
    using Out = decltype(dx_type);
    using S = Accumulator<T>;
    const T* from = dvalues.data<T>();
    const std::int32_t* id = ids.data<std::int32_t>();
    Out* rows = dx.data<Out>();
    const Tensor scratch({omp_get_max_threads(), E}, DTypeOf<S>::value, dx.device(),
                         Purpose::Workspace);
    S* all_sums = scratch.data<S>();
    parallel_rows(dx.shape()[0], E, [=](std::int64_t n) {
      S* sums = all_sums + omp_get_thread_num() * E;
      Out* row = rows + n * E;
      const std::int64_t begin = n * k, end = begin + k;
      if (into == Into::Overwrite) std::fill(row, row + E, Out{});
      for (std::int64_t i = begin; i < end; ++i)
        if (id[i] >= 0) sums[id[i]] = static_cast<S>(row[id[i]]);
      for (std::int64_t i = begin; i < end; ++i)
        if (id[i] >= 0) sums[id[i]] += widen(from[i]);
      for (std::int64_t i = begin; i < end; ++i)
        if (id[i] >= 0) row[id[i]] = static_cast<Out>(sums[id[i]]);
    });
  });
}

}  // namespace aisc::cpu
