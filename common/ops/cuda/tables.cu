// Operations that choose rows by whole numbers: embedding and its backward.
//
// Bytes moved, for elements of `size` bytes: embedding 2 N C size; embedding_backward N C size and
// what it writes, all of dtable (V, C) once with Overwrite, and about 40 N to sort the ids. Share
// of a copy's bandwidth (./aisc bench gpu, BF16 on an H200): embedding 1.03, backward .19: the
// sort.
//
// The backward sorts the places by id (sorted_places.h); then each id's places lie side by side, in
// the order of N, and a warp adds up their rows for some of the columns. The longest list bounds
// the time: a warp has 8 rows of it on their way at once.
#include "common/core/cuda/fault.h"
#include "common/ops/cuda/grid.h"
#include "common/ops/cuda/kernels.h"
#include "common/ops/cuda/sorted_places.h"

namespace aisc::cuda {
namespace {

constexpr int kWarps = kThreads / 32;

// The rows from `begin` on are here.
struct Ids {
  const std::int32_t* ids;
  std::int64_t begin, limit;
};

// A warp a row of out; n divides C. An id that is outside, or whose row is not here, has zeros.
template <int n, ops::Into into, class T>
__global__ void __launch_bounds__(kThreads)
    embedding_kernel(T* out, const T* table, Ids ids, std::int64_t N, std::int64_t V,
                     std::int64_t C, Report report) {
  const unsigned lane = threadIdx.x % 32;
  const std::int64_t row = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (row >= N) return;
  const std::int64_t id = ids.ids[row], here = id - ids.begin;
  const bool exists = id >= 0 && id < ids.limit, inside = exists && here >= 0 && here < V;
  if (!exists && lane == 0) gpu::raise(report.fault, report.text, row, id, ids.limit);
#pragma unroll 4
  for (std::int64_t c = std::int64_t{lane} * n; c < C; c += 32 * n) {
    Neighbours<T, n> found{};
    if (inside) found = neighbours<n>(table + here * C + c);
    T* to = out + row * C + c;
    if constexpr (into == ops::Into::Overwrite) {
      *reinterpret_cast<Neighbours<T, n>*>(to) = found;
    } else {
      Accumulator<T> values[n], more[n];
      widen_all<n>(more, found);
      load<n>(values, to);
#pragma unroll
      for (int k = 0; k < n; ++k) values[k] += more[k];
      store<n>(to, values);
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    token_positions_kernel(std::int32_t* ids, std::int64_t count, std::int64_t T,
                           ops::TokenRuns runs) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= count) return;
  const std::int64_t t = i % T;
  ids[i] =
      static_cast<std::int32_t>(t < runs.split ? runs.first + t : runs.second + t - runs.split);
}

// A warp looks at one place of the sorted list and 32 n columns, and works where an id's list
// begins. ids: V stands for one that is outside, or not here.
template <int n, class Out, class T>
__global__ void __launch_bounds__(kThreads)
    embedding_backward_kernel(Out* dtable, const T* dout, const std::uint32_t* ids,
                              const std::uint32_t* places, std::int64_t N, std::int64_t V,
                              std::int64_t C, std::int64_t stripes, ops::Into into) {
  using S = Accumulator<T>;
  constexpr int kAhead = 8;
  const std::int64_t warp = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const std::int64_t begin = warp / stripes;
  if (begin >= N) return;
  const std::uint32_t id = ids[begin];
  if (id >= V || (begin > 0 && ids[begin - 1] == id)) return;
  const std::int64_t c = (warp % stripes * 32 + threadIdx.x % 32) * n;
  if (c >= C) return;
  Out* to = dtable + id * C + c;
  S sums[n] = {};
  if (into == ops::Into::Accumulate) {
    Accumulator<Out> before[n];
    load<n>(before, to);
#pragma unroll
    for (int k = 0; k < n; ++k) sums[k] = static_cast<S>(before[k]);
  }
  for (std::int64_t first = begin; first < N && ids[first] == id; first += kAhead) {
    Neighbours<T, n> rows[kAhead] = {};
    bool mine[kAhead];
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      mine[a] = first + a < N && ids[first + a] == id;
      if (mine[a]) rows[a] = neighbours<n>(dout + std::int64_t{places[first + a]} * C + c);
    }
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (!mine[a]) continue;
#pragma unroll
      for (int k = 0; k < n; ++k) sums[k] += widen(rows[a].elements[k]);
    }
  }
  store<n>(to, sums);
}

template <class Out, class T>
void add_to_table(const View& dtable, const ConstView& dout, const SortedPlaces& sorted,
                  Into into) {
  const std::int64_t N = dout.shape()[0], V = dtable.shape()[0], C = dtable.shape()[1];
  const bool wide = aligned(dtable.raw(), dout.raw()) && C % kWidth<T> == 0;
  dispatch_width<T>(wide, [&]<int n>() {
    const std::int64_t stripes = pieces(C, 32 * n);
    launch_kernel("embedding_backward", stream_of(dout), blocks_for(N * stripes, kWarps), kThreads,
                  0, embedding_backward_kernel<n, Out, T>, elements<Out>(dtable), elements<T>(dout),
                  sorted.ids(), sorted.places(), N, V, C, stripes, into);
  });
}

}  // namespace

void embedding(View out, ConstView table, ConstView ids, Into into, ops::TablePart part) {
  const std::int64_t N = ids.count(), V = table.shape()[0], C = table.shape()[1];
  const Report report{as_cuda(out.device()).fault(),
                      "embedding: id[{}] is {}, expected 0 <= id < {}"};
  dispatch(table.dtype(), [&](auto type) {
    using T = decltype(type);
    const bool wide = aligned(out.raw(), table.raw()) && C % kWidth<T> == 0;
    dispatch_width<T>(wide, [&]<int n>() {
      const auto run = [&](auto kernel) {
        launch_kernel("embedding", stream_of(out), blocks_for(N, kWarps), kThreads, 0, kernel,
                      elements<T>(out), elements<T>(table),
                      Ids{elements<std::int32_t>(ids), part.begin, part.all == 0 ? V : part.all}, N,
                      V, C, report);
      };
      if (into == Into::Overwrite)
        run(embedding_kernel<n, Into::Overwrite, T>);
      else
        run(embedding_kernel<n, Into::Accumulate, T>);
    });
  });
}

void token_positions(View ids, const ops::TokenRuns& runs) {
  launch_kernel("token_positions", stream_of(ids), blocks_for(ids.count(), kThreads), kThreads, 0,
                token_positions_kernel, elements<std::int32_t>(ids), ids.count(), ids.shape()[-1],
                runs);
}

void embedding_backward(View dtable, ConstView dout, ConstView ids, Into into,
                        ops::TablePart part) {
  if (into == Into::Overwrite) dtable.device().zero(dtable);
  if (ids.count() == 0 || dtable.shape()[1] == 0) return;
  const SortedPlaces sorted("embedding_backward", ids, dtable.shape()[0], part,
                            "embedding_backward: id[{}] is {}, expected 0 <= id < {}");
  dispatch_or_f32(dout.dtype(), dtable.dtype(), [&](auto type, auto table_type) {
    add_to_table<decltype(table_type), decltype(type)>(dtable, dout, sorted, into);
  });
}

}  // namespace aisc::cuda
