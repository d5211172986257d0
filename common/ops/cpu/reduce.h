// Sums and maxima of rows. One running sum makes each addition wait for the one before; here kLanes
// independent ones run beside each other and meet at the end. Their order is fixed by the count
// alone.
#pragma once

#include <cstdint>
#include <limits>

#include "common/ops/cpu/vector_math.h"

namespace aisc::cpu {

inline constexpr std::int64_t kLanes = 64;

// The sum of f(i) over 0 <= i < count, in S.
template <class S, class F>
[[gnu::always_inline]] inline S sum_of(std::int64_t count, F f) {
  S lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
#pragma omp simd
    for (std::int64_t l = 0; l < kLanes; ++l) lanes[l] += f(i + l);
  S sum = 0;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t k = i; k < count; ++k) sum += f(k);
#pragma omp simd reduction(+ : sum)
  for (std::int64_t l = 0; l < kLanes; ++l) sum += lanes[l];
  return sum;
}

// The largest of row[0 .. count), NaNs left out; minus infinity if nothing else is there.
template <class S, class T>
[[gnu::always_inline]] inline S maximum_of(const T* row, std::int64_t count) {
  S lanes[kLanes];
  for (S& lane : lanes) lane = -std::numeric_limits<S>::infinity();
  const auto larger = [](S a, S b) { return b > a ? b : a; };
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
#pragma omp simd
    for (std::int64_t l = 0; l < kLanes; ++l) lanes[l] = larger(lanes[l], widen(row[i + l]));
  for (std::int64_t l = 0; i + l < count; ++l) lanes[l] = larger(lanes[l], widen(row[i + l]));
  S maximum = lanes[0];
#pragma omp simd reduction(max : maximum)
  for (std::int64_t l = 0; l < kLanes; ++l) maximum = larger(maximum, lanes[l]);
  return maximum;
}

}  // namespace aisc::cpu
