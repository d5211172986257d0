// Both ways of learning with one thread, written out in full: what the threads have to agree with.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "01_mutex_mae/descent.h"
#include "tests/01_mutex_mae/exact_problem.h"
#include "tests/01_mutex_mae/watched.h"

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

using Train = Descent (*)(const Problem&, Team&, const DescentOptions&);

// The same losses and weights, but for `rounding`.
inline void expect_descent(const Descent& found, const Descent& expected, double rounding,
                           const std::string& what) {
  ASSERT_EQ(found.loss.size(), expected.loss.size()) << "a loss for the start and each epoch";
  ASSERT_EQ(found.weights.size(), expected.weights.size()) << "M weights and the bias";
  const auto far = [&](double a, double b) { return !(std::fabs(a - b) <= rounding); };
  for (std::size_t e = 0; e < expected.loss.size(); ++e)
    if (far(found.loss[e], expected.loss[e]))
      FAIL() << what << ": the loss after " << e << " epochs is the first that differs, "
             << exactly(found.loss[e]) << " instead of " << exactly(expected.loss[e])
             << "; threads may change it by " << rounding;
  for (std::size_t j = 0; j < expected.weights.size(); ++j)
    if (far(found.weights[j], expected.weights[j]))
      FAIL() << what << ": the losses are right, but weight " << j << " (the bias is last) is "
             << exactly(found.weights[j]) << " instead of " << exactly(expected.weights[j]);
}

inline void expect_weights_stay_without_samples_or_epochs(Train train) {
  const Problem none = exact_problem(0, 3, test_seed()), some = exact_problem(9, 3, test_seed());
  Team team(2);
  const Descent without_samples = train(none, team, {.epochs = 2});
  EXPECT_EQ(without_samples.weights, weights_of(none));
  EXPECT_EQ(without_samples.loss, (std::vector<double>{0, 0, 0}));
  const Descent without_epochs = train(some, team, {.epochs = 0});
  EXPECT_EQ(without_epochs.weights, weights_of(some));
  EXPECT_EQ(without_epochs.loss, std::vector<double>{serial_loss(some, weights_of(some))});
}

// Of noisy samples, with weights and bias that are far from what they should be.
inline Problem problem_to_learn(std::int64_t N) {
  Problem problem = make_problem(N, 6, test_seed());
  std::fill(problem.w.begin(), problem.w.end(), 0.0f);
  problem.b += 2;
  return problem;
}

}  // namespace aisc
