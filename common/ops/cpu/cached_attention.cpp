// Attention of the next tokens of a sequence to the keys and values that are kept of it. Nothing
// here is reused: each key and value is read once per token, and the time is that of reading them.
// One thread takes one head, whose scores for all positions lie in a workspace; a token's result
// depends on nothing but its position, not on how many tokens came with it.
#include <omp.h>

#include <algorithm>
#include <cmath>

#include "common/ops/cpu/kernels.h"
#include "common/ops/cpu/parallel.h"
#include "common/ops/cpu/reduce.h"
#include "common/ops/cpu/vector_math.h"

namespace aisc::cpu {
namespace {

// The sizes of one call: T tokens from `first` on, H heads of D columns, room for S tokens.
struct CacheSizes {
  CacheSizes(const ConstView& keys_values, const ConstView& qkv, std::int64_t first_)
      : B(qkv.shape()[0]),
        T(qkv.shape()[1]),
        H(keys_values.shape()[1] / 2),
        S(keys_values.shape()[2]),
        D(keys_values.shape()[3]),
        first(first_) {}

  std::int64_t B, T, H, S, D, first;
};

// out (D) = softmax(query keys^T) values over `count` keys and values (count, D). The query is
// scaled already; `scores` (count) and `sums` (D) are the caller's.
template <class A, class T>
void attend(T* out, const A* query, const T* keys, const T* values, std::int64_t count,
            std::int64_t D, A* scores, A* sums) {
  // All scores first: their maximum has to be known before the first exponential.
  for (std::int64_t j = 0; j < count; ++j) {
    const T* key = keys + j * D;
    A score = 0;
#pragma omp simd reduction(+ : score)
    for (std::int64_t d = 0; d < D; ++d) score += query[d] * widen(key[d]);
    scores[j] = score;
  }
  const A maximum = maximum_of<A>(scores, count);  // a NaN is not lost: its exponential is NaN
#pragma omp simd
  for (std::int64_t j = 0; j < count; ++j) scores[j] = vector_exp(scores[j] - maximum);
  const A inverse = A(1) / sum_of<A>(count, [scores](std::int64_t j) { return scores[j]; });

  // The division by the sum of the weights comes at the end, once for each of D columns.
  std::fill(sums, sums + D, A(0));
  for (std::int64_t j = 0; j < count; ++j) {
    const T* value = values + j * D;
    const A weight = scores[j];
#pragma omp simd
    for (std::int64_t d = 0; d < D; ++d) sums[d] += weight * widen(value[d]);
  }
  for (std::int64_t d = 0; d < D; ++d) out[d] = narrow<T>(sums[d] * inverse);
}

template <class T>
void store(View keys_values, ConstView qkv, const CacheSizes& z) {
  const T* from = qkv.data<T>();
  T* to = keys_values.data<T>();
  parallel_rows(z.B * z.H, 2 * z.T * z.D, [=](std::int64_t head) {
    const std::int64_t b = head / z.H, h = head % z.H;
    T* keys = to + (2 * head * z.S + z.first) * z.D;
    T* values = keys + z.S * z.D;
    for (std::int64_t t = 0; t < z.T; ++t) {
      const T* key = from + ((b * z.T + t) * z.H + h) * 3 * z.D + z.D;
      std::copy(key, key + z.D, keys + t * z.D);
      std::copy(key + z.D, key + 2 * z.D, values + t * z.D);
    }
  });
}

template <class T>
void forward(View out, ConstView qkv, ConstView keys_values, const CacheSizes& z) {
  using A = Accumulator<T>;
  const A scale = static_cast<A>(1.0 / std::sqrt(static_cast<double>(z.D)));
  const std::int64_t part = z.S + 2 * z.D;  // of the workspace: scores, a query, sums
  const Tensor workspace({omp_get_max_threads() * part}, DTypeOf<A>::value, out.device(),
                         Purpose::Workspace);
  const T *input = qkv.data<T>(), *kept = keys_values.data<T>();
  T* output = out.data<T>();
  A* shared = workspace.data<A>();
  parallel_rows(z.B * z.H, z.T * (z.first + z.T) * z.D, [=](std::int64_t head) {
    const std::int64_t b = head / z.H, h = head % z.H;
    const T *keys = kept + 2 * head * z.S * z.D, *values = keys + z.S * z.D;
    A* scores = shared + omp_get_thread_num() * part;
    A *query = scores + z.S, *sums = query + z.D;
    for (std::int64_t t = 0; t < z.T; ++t) {
      const std::int64_t token = (b * z.T + t) * z.H + h;
      for (std::int64_t d = 0; d < z.D; ++d) query[d] = scale * widen(input[token * 3 * z.D + d]);
      attend<A>(output + token * z.D, query, keys, values, z.first + t + 1, z.D, scores, sums);
    }
  });
}

}  // namespace

void store_keys_values(View keys_values, ConstView qkv, std::int64_t /*heads*/,
                       std::int64_t first) {
  if (qkv.count() == 0) return;
  dispatch(qkv.dtype(), [&](auto type) {
    store<decltype(type)>(keys_values, qkv, CacheSizes(keys_values, qkv, first));
  });
}

void cached_attention(View out, ConstView qkv, ConstView keys_values, std::int64_t /*heads*/,
                      std::int64_t first) {
  if (out.count() == 0) return;
  dispatch(qkv.dtype(), [&](auto type) {
    forward<decltype(type)>(out, qkv, keys_values, CacheSizes(keys_values, qkv, first));
  });
}

}  // namespace aisc::cpu
