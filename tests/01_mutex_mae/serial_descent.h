// Both ways of learning with one thread, written out in full: what the threads have to agree with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "01_mutex_mae/descent.h"

namespace aisc {

inline double serial_residual(const Problem& problem, std::int64_t i, const Weights& weights) {
  const auto M = static_cast<std::size_t>(problem.M), row = static_cast<std::size_t>(i) * M;
  double sum = weights[M] - problem.y[static_cast<std::size_t>(i)];
  for (std::size_t j = 0; j < M; ++j) sum += weights[j] * problem.x[row + j];
  return sum;
}

inline double serial_loss(const Problem& problem, const Weights& weights) {
  double sum = 0;
  for (std::int64_t i = 0; i < problem.N; ++i)
    sum += std::fabs(serial_residual(problem, i, weights));
  return problem.N > 0 ? sum / static_cast<double>(problem.N) : 0;
}

// The mean subgradient of samples order[begin .. begin + count - 1] at `weights`.
inline Weights serial_gradient(const Problem& problem, const std::vector<std::int64_t>& order,
                               std::int64_t begin, std::int64_t count, const Weights& weights) {
  Weights gradient(weights.size(), 0.0);
  for (std::int64_t k = begin; k < begin + count; ++k) {
    const std::int64_t i = order[static_cast<std::size_t>(k)];
    const double r = serial_residual(problem, i, weights);
    const double sign = r > 0 ? 1 : r < 0 ? -1 : 0;
    for (std::size_t j = 0; j + 1 < weights.size(); ++j)
      gradient[j] += sign * problem.x[static_cast<std::size_t>(i * problem.M) + j];
    gradient.back() += sign;
  }
  for (double& g : gradient) g /= static_cast<double>(count);
  return gradient;
}

// `batch` samples a step; 1 is what Hogwild does with one thread.
inline Descent serial_descent(const Problem& problem, const DescentOptions& options,
                              std::int64_t batch) {
  Descent descent{.weights = weights_of(problem)};
  descent.loss.push_back(serial_loss(problem, descent.weights));
  for (std::int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    const std::vector<std::int64_t> order = order_of(problem.N, options.seed, epoch);
    for (std::int64_t begin = 0; begin < problem.N; begin += batch) {
      const std::int64_t count = std::min(batch, problem.N - begin);
      const Weights gradient = serial_gradient(problem, order, begin, count, descent.weights);
      for (std::size_t j = 0; j < gradient.size(); ++j)
        descent.weights[j] -= options.learning_rate * gradient[j];
    }
    descent.loss.push_back(serial_loss(problem, descent.weights));
  }
  return descent;
}

}  // namespace aisc
