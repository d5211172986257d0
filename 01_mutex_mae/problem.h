// The problem of this module: N samples, a linear model, and how far it is off on each of them. The
// mean of these errors is what the threads of the other files add up.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include "common/core/range.h"

namespace aisc {

// N samples of M features. The model predicts w . x_i + b for sample i.
struct Problem {
  std::int64_t N = 0;    // samples, may be 0
  std::int64_t M = 0;    // features of a sample
  std::vector<float> x;  // (N, M)
  std::vector<float> y;  // (N)
  std::vector<float> w;  // (M)
  float b = 0;

  // If set, called with i, in the thread that asks, whenever the error of sample i is asked for.
  // So tests see who computes what, and may make a thread wait for others.
  std::function<void(std::int64_t sample)> watch;
};

// Features, weights and bias are normal; the targets are off by Laplace noise of mean size 1, and
// the model's weights by a little. Value i is a function of (seed, i): the same on every machine.
Problem make_problem(std::int64_t N, std::int64_t M, std::uint64_t seed = 1);

// |w . x_i + b - y_i|. The products are added in F32, one after the other, from b - y_i on.
inline float error_of(const Problem& problem, std::int64_t i) {
  if (problem.watch) problem.watch(i);
  const float* w = problem.w.data();
  const float* x = problem.x.data() + i * problem.M;
  float sum = problem.b - problem.y[static_cast<std::size_t>(i)];
  for (std::int64_t j = 0; j < problem.M; ++j) sum += w[j] * x[j];
  return std::fabs(sum);
}

// `sum` / N, and 0 for N = 0: the mean of N errors whose sum is known.
inline double mean_error(double sum, std::int64_t N) {
  return N == 0 ? 0 : sum / static_cast<double>(N);
}

}  // namespace aisc
