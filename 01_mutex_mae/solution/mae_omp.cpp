// The sums of mae.cpp as OpenMP writes them, one pragma each; then both sums in parallel.
#include "01_mutex_mae/mae_omp.h"

#include <cstring>

namespace aisc {

// LAB 01.8: threads x SIMD
// > Helpers, if you want any.
namespace {

// Vectors as a type: the compiler keeps one in as few registers as the processor has for it, and
// adds all its lanes at once.
using Lanes16 [[gnu::vector_size(64)]] = float;
using Lanes8 [[gnu::vector_size(32)]] = float;
using Lanes4 [[gnu::vector_size(16)]] = float;
using Lanes2 [[gnu::vector_size(8)]] = float;

void add_products(Lanes16& sums, const float* w, const float* x) {
  Lanes16 weights, features;
  std::memcpy(&weights, w, sizeof weights);
  std::memcpy(&features, x, sizeof features);
  sums += weights * features;
}

// Adds the upper half of the lanes to the lower half.
template <class Whole, class Half>
void fold(const Whole& whole, Half& half) {
  Half halves[2];
  static_assert(sizeof halves == sizeof whole);
  std::memcpy(halves, &whole, sizeof whole);
  half = halves[0] + halves[1];
}

// error_by_lanes, made to be inlined into the loop of mae_simd: a call for each sample takes longer
// than 16 features.
inline float by_lanes(const Problem& problem, std::int64_t i) {
  if (problem.watch) problem.watch(i);
  const std::int64_t M = problem.M;
  const float* w = problem.w.data();
  const float* x = problem.x.data() + i * M;
  Lanes16 sums = {};
  std::int64_t j = 0;
  for (; j + kLanes <= M; j += kLanes) add_products(sums, w + j, x + j);
  if (j < M) {
    Lanes16 products = {};  // lanes without a feature add 0
    for (int l = 0; j + l < M; ++l) products[l] = w[j + l] * x[j + l];
    sums += products;
  }
  Lanes8 eight;
  Lanes4 four;
  Lanes2 two;
  float sum;
  fold(sums, eight);
  fold(eight, four);
  fold(four, two);
  fold(two, sum);
  return std::fabs(sum + (problem.b - problem.y[static_cast<std::size_t>(i)]));
}

}  // namespace
// END LAB 01.8

double mae_omp_critical(const Problem& problem, int threads) {
  // LAB 01.7: the OpenMP forms
  // > OpenMP shares the loop out, schedule(static), over as many threads as asked for. Which part
  // > of its body may only one thread do at a time?
  double sum = 0;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t i = 0; i < problem.N; ++i) {
    const double error = error_of(problem, i);
#pragma omp critical
    sum += error;
  }
  return mean_error(sum, problem.N);
  // END LAB 01.7
}

double mae_omp_atomic(const Problem& problem, int threads) {
  // LAB 01.7: the OpenMP forms
  double sum = 0;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (std::int64_t i = 0; i < problem.N; ++i) {
    const double error = error_of(problem, i);
#pragma omp atomic
    sum += error;
  }
  return mean_error(sum, problem.N);
  // END LAB 01.7
}

double mae_omp_reduction(const Problem& problem, int threads) {
  // LAB 01.7: the OpenMP forms
  double sum = 0;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : sum)
  for (std::int64_t i = 0; i < problem.N; ++i) sum += error_of(problem, i);
  return mean_error(sum, problem.N);
  // END LAB 01.7
}

float error_by_lanes(const Problem& problem, std::int64_t i) {
  // LAB 01.8: threads x SIMD
  // > problem.watch first, as in error_of. An array of kLanes sums does; vectors as a type, such as
  // > `using Lanes [[gnu::vector_size(64)]] = float`, are faster. M need not divide by 16.
  return by_lanes(problem, i);
  // END LAB 01.8
}

double mae_simd(const Problem& problem, int threads) {
  // LAB 01.8: threads x SIMD
  double sum = 0;
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : sum)
  for (std::int64_t i = 0; i < problem.N; ++i) sum += by_lanes(problem, i);
  return mean_error(sum, problem.N);
  // END LAB 01.8
}

}  // namespace aisc
