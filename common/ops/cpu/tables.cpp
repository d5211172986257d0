// Operations that choose rows or columns by whole numbers: embedding and cross entropy.
#include <algorithm>
#include <cmath>
#include <limits>

#include "common/ops/cpu/check_range.h"
#include "common/ops/cpu/kernels.h"
#include "common/ops/cpu/parallel.h"
#include "common/ops/cpu/reduce.h"
#include "common/ops/cpu/vector_math.h"

namespace aisc::cpu {
namespace {

constexpr std::int64_t kClassBlock =
    1024;  // columns that pass the maximum and then the sum, in cache

// The rows, or classes, of [begin, begin + count) that are here; the numbers that exist are those
// below `limit`.
struct Here {
  Here(const ops::TablePart& part, std::int64_t rows)
      : begin(part.begin), count(rows), limit(part.all == 0 ? rows : part.all) {}
  // -1: not here.
  std::int64_t operator()(std::int64_t number) const {
    return number >= begin && number < begin + count ? number - begin : -1;
  }
  std::int64_t begin, count, limit;
};

// The places at which each id that is here occurs, as linked lists: heads[k] is the first place of
// the k-th different id, next[place] the following place with the same id or -1.
struct Occurrences {
  Occurrences(ConstView ids, const Here& here, std::int64_t V, Device& device)
      : lists({V + 2 * ids.count()}, DType::I32, device, Purpose::Workspace) {
    const std::int32_t* id = ids.data<std::int32_t>();
    std::int32_t* last = lists.data<std::int32_t>();
    next = last + V;
    heads = next + ids.count();
    std::fill(last, next, -1);
    for (std::int32_t n = 0; n < ids.count(); ++n) {
      next[n] = -1;
      const std::int64_t row = here(id[n]);
      if (row < 0) continue;
      if (last[row] < 0)
        heads[count++] = n;
      else
        next[last[row]] = n;
      last[row] = n;
    }
  }

  bool contains(std::int64_t id) const { return lists.data<std::int32_t>()[id] >= 0; }

  Tensor lists;            // (V + 2 N): the last place of each id, -1 for none; next; heads
  std::int64_t count = 0;  // of different ids
  std::int32_t *next, *heads;
};

template <class Out, class T>
void add_to_table(View dtable, ConstView dout, ConstView ids, Into into, const Here& here) {
  using S = Accumulator<T>;
  const std::int64_t V = dtable.shape()[0], C = dtable.shape()[1];
  const std::int32_t* id = ids.data<std::int32_t>();
  const T* from = dout.data<T>();
  Out* table = dtable.data<Out>();
  const Occurrences places(ids, here, V, dtable.device());
  if (into == Into::Overwrite)
    parallel_rows(V, C, [&](std::int64_t row) {
      if (!places.contains(row)) std::fill(table + row * C, table + (row + 1) * C, Out{});
    });
  const Tensor sums({omp_get_max_threads(), C}, DTypeOf<S>::value, dtable.device(),
                    Purpose::Workspace);
  // Frequent ids come first and have the longest lists: threads take them one by one.
#pragma omp parallel for schedule(dynamic) if (ids.count() * C >= kSerialBelow)
  for (std::int64_t k = 0; k < places.count; ++k) {
    S* sum = sums.data<S>() + omp_get_thread_num() * C;
    Out* row = table + here(id[places.heads[k]]) * C;
#pragma omp simd
    for (std::int64_t c = 0; c < C; ++c) sum[c] = into == Into::Accumulate ? widen(row[c]) : S(0);
    for (std::int32_t n = places.heads[k]; n >= 0; n = places.next[n]) {
#pragma omp simd
      for (std::int64_t c = 0; c < C; ++c) sum[c] += widen(from[n * C + c]);
    }
#pragma omp simd
    for (std::int64_t c = 0; c < C; ++c) row[c] = narrow<Out>(sum[c]);
  }
}

// log(sum(exp(row))) in one pass over memory. Per block: its maximum, the sum so far brought to the
// new maximum, the block's exponentials added.
template <class S, class T>
S log_sum_exp_of(const T* row, std::int64_t classes) {
  S maximum = -std::numeric_limits<S>::infinity(), sum = 0;
  for (std::int64_t begin = 0; begin < classes; begin += kClassBlock) {
    const T* block = row + begin;
    const std::int64_t count = std::min(kClassBlock, classes - begin);
    const S top = std::max(maximum, maximum_of<S>(block, count));
    // As long as all are minus infinity, any finite number will do: their exponentials are 0.
    const S shift = top == -std::numeric_limits<S>::infinity() ? S(0) : top;
    sum = sum * vector_exp(maximum - shift) +
          sum_of<S>(count, [=](std::int64_t c) { return vector_exp(widen(block[c]) - shift); });
    maximum = top;
  }
  return maximum + std::log(sum);
}

// What q, to which the loss is the cross-entropy, has at the target and at every other class.
template <class S>
struct Aims {
  Aims(double smoothing, std::int64_t classes)
      : elsewhere(smoothing > 0 ? static_cast<S>(smoothing / static_cast<double>(classes)) : S(0)),
        at_target(static_cast<S>(1 - smoothing) + elsewhere) {}
  S elsewhere, at_target;
};

}  // namespace

void embedding(View out, ConstView table, ConstView ids, Into into, ops::TablePart part) {
  const Here here(part, table.shape()[0]);
  check_range("embedding", "id", ids, 0, here.limit);
  dispatch(table.dtype(), [&](auto type) {
    using T = decltype(type);
    const std::int64_t C = table.shape()[1];
    const std::int32_t* id = ids.data<std::int32_t>();
    const T* rows = table.data<T>();
    T* to = out.data<T>();
    parallel_rows(ids.count(), C, [=](std::int64_t n) {
      const std::int64_t found = here(id[n]);
      const T* row = rows + found * C;
      if (found < 0) {
        if (into == Into::Overwrite) std::fill(to + n * C, to + (n + 1) * C, T{});
      } else if (into == Into::Overwrite)
        std::copy(row, row + C, to + n * C);
      else
#pragma omp simd
        for (std::int64_t c = 0; c < C; ++c)
          to[n * C + c] = narrow<T>(widen(to[n * C + c]) + widen(row[c]));
    });
  });
}

void token_positions(View ids, const ops::TokenRuns& runs) {
  const std::int64_t T = ids.shape()[-1];
  std::int32_t* id = ids.data<std::int32_t>();
  for (std::int64_t i = 0; i < ids.count(); ++i)
    id[i] = static_cast<std::int32_t>(runs.position(i % T));
}

void embedding_backward(View dtable, ConstView dout, ConstView ids, Into into,
                        ops::TablePart part) {
  const Here here(part, dtable.shape()[0]);
  check_range("embedding_backward", "id", ids, 0, here.limit);
  dispatch_or_f32(dout.dtype(), dtable.dtype(), [&](auto type, auto table_type) {
    add_to_table<decltype(table_type), decltype(type)>(dtable, dout, ids, into, here);
  });
}

void cross_entropy(View losses, View log_sum_exp, ConstView logits, ConstView targets,
                   std::int64_t classes, ops::TablePart part, double smoothing) {
  const Here here(part, classes);
  check_range("cross_entropy", "target", targets, -1, here.limit);
  dispatch(logits.dtype(), [&](auto type) {
    using T = decltype(type);
    using S = Accumulator<T>;
    const std::int64_t V = logits.shape()[1];
    const T* rows = logits.data<T>();
    const std::int32_t* target = targets.data<std::int32_t>();
    S *loss = losses.data<S>(), *lse = log_sum_exp.data<S>();
    const S smoothed = static_cast<S>(smoothing), sharp = static_cast<S>(1 - smoothing);
    parallel_rows(targets.count(), V, [=](std::int64_t n) {
      const T* row = rows + n * V;
      const S all = log_sum_exp_of<S>(row, classes);
      const std::int64_t mine = here(target[n]);
      lse[n] = all;
      loss[n] = mine < 0 ? S(0) : all - widen(row[mine]);
      if (smoothed == 0 || mine < 0) return;
      // No term is below 0, so that their sum does not cancel; the row is still in cache.
      const S sum = sum_of<S>(classes, [=](std::int64_t c) { return all - widen(row[c]); });
      loss[n] = sharp * loss[n] + smoothed * (sum / static_cast<S>(classes));
    });
  });
}

void cross_entropy_backward(View dlogits, ConstView logits, ConstView log_sum_exp,
                            ConstView targets, std::int64_t classes, double factor,
                            ops::TablePart part, double smoothing) {
  const Here here(part, classes);
  check_range("cross_entropy_backward", "target", targets, -1, here.limit);
  dispatch(logits.dtype(), [&](auto type) {
    using T = decltype(type);
    using S = Accumulator<T>;
    const std::int64_t V = logits.shape()[1];
    const T* from = logits.data<T>();
    const std::int32_t* target = targets.data<std::int32_t>();
    const S* lse = log_sum_exp.data<S>();
    T* to = dlogits.data<T>();
    const S scale = static_cast<S>(factor);
    const Aims<S> aims(smoothing, classes);
    parallel_rows(targets.count(), V, [=](std::int64_t n) {
      const T* row = from + n * V;
      T* out = to + n * V;
      if (target[n] < 0) {
        std::fill(out, out + V, T{});
        return;
      }
      const S shift = lse[n];
      const std::int64_t mine = here(target[n]);
      const S at_target =
          mine < 0 ? S(0) : scale * (vector_exp(widen(row[mine]) - shift) - aims.at_target);
#pragma omp simd
      for (std::int64_t c = 0; c < classes; ++c)
        out[c] = narrow<T>(scale * (vector_exp(widen(row[c]) - shift) - aims.elsewhere));
      if (mine >= 0) out[mine] = narrow<T>(at_target);
      std::fill(out + classes, out + V, T{});
    });
  });
}

}  // namespace aisc::cpu
