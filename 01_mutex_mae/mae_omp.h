// The same sums in OpenMP's words, and both sums in parallel: samples over threads, features over
// the lanes of a vector register. Results are 0 for N = 0; `threads` >= 1 may be larger than N.
// Each sample's error is asked for once, by the thread to which `schedule(static)` gives it, of
// exactly `threads` threads.
#pragma once

#include "01_mutex_mae/problem.h"

namespace aisc {

double mae_omp_critical(const Problem& problem, int threads);   // omp critical around each addition
double mae_omp_atomic(const Problem& problem, int threads);     // omp atomic on each addition
double mae_omp_reduction(const Problem& problem, int threads);  // reduction(+ : sum)

// Partial sums of a dot product: 16 floats, a vector register of AVX-512.
inline constexpr int kLanes = 16;

// |w . x_i + b - y_i| by lanes. Lane l adds, in F32, the products of features l, l + 16, l + 32,
// ... in this order, from 0 on. Then lanes are added in pairs, l and l + 8 for l < 8, l and l + 4
// for l < 4, l and l + 2, l and l + 1; to lane 0 then b - y_i. The additions of different lanes do
// not wait for each other, which a compiler may not arrange by itself: it would change the result.
// Calls problem.watch as error_of does.
float error_by_lanes(const Problem& problem, std::int64_t i);

// `threads` OpenMP threads, each sample by error_by_lanes.
double mae_simd(const Problem& problem, int threads);

}  // namespace aisc
