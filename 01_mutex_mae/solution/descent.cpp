// Two ways to learn at the same time: in step, where all threads wait for the slowest once a batch,
// and without any waiting, where some of what a thread learns is lost.
#include "01_mutex_mae/descent.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "01_mutex_mae/mae.h"
#include "01_mutex_mae/partial_sums.h"
#include "common/core/rng.h"

namespace aisc {
namespace {

constexpr std::int64_t kBlock = 256;  // samples whose errors one thread adds up, for mae_at

double distance(const Problem& problem, std::int64_t i, std::span<const double> weights) {
  const auto M = static_cast<std::size_t>(problem.M);
  const float* x = problem.x.data() + i * problem.M;
  double sum = weights[M] - problem.y[static_cast<std::size_t>(i)];
  for (std::size_t j = 0; j < M; ++j) sum += weights[j] * x[j];
  return sum;
}

}  // namespace

Weights weights_of(const Problem& problem) {
  Weights weights(problem.w.begin(), problem.w.end());
  weights.push_back(problem.b);
  return weights;
}

double residual(const Problem& problem, std::int64_t i, std::span<const double> weights) {
  if (problem.watch) problem.watch(i);
  return distance(problem, i, weights);
}

double mae_at(const Problem& problem, std::span<const double> weights, Team& team) {
  if (problem.N == 0) return 0;
  std::vector<double> sums(static_cast<std::size_t>((problem.N + kBlock - 1) / kBlock));
  team.run([&](int thread) {
    for (std::size_t k = static_cast<std::size_t>(thread); k < sums.size();
         k += static_cast<std::size_t>(team.size())) {
      const std::int64_t begin = static_cast<std::int64_t>(k) * kBlock;
      double sum = 0;
      for (std::int64_t i = begin; i < std::min(begin + kBlock, problem.N); ++i)
        sum += std::fabs(distance(problem, i, weights));
      sums[k] = sum;
    }
  });
  return std::accumulate(sums.begin(), sums.end(), 0.0) / static_cast<double>(problem.N);
}

std::vector<std::int64_t> order_of(std::int64_t N, std::uint64_t seed, std::int64_t epoch) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(N));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const Philox random(seed, "order", static_cast<std::uint64_t>(epoch));
  for (std::size_t i = order.size(); i-- > 1;) std::swap(order[i], order[random.below(i, i + 1)]);
  return order;
}

double add_subgradient(const Problem& problem, std::int64_t i, std::span<const double> weights,
                       double factor, std::span<double> gradient) {
  // LAB 01.13: subgradient
  // > |r| falls with r below 0, rises with r above 0, and at 0 does neither.
  const auto M = static_cast<std::size_t>(problem.M);
  const float* x = problem.x.data() + i * problem.M;
  const double r = residual(problem, i, weights);
  const double slope = factor * (r > 0 ? 1 : r < 0 ? -1 : 0);
  for (std::size_t j = 0; j < M; ++j) gradient[j] += slope * x[j];
  gradient[M] += slope;
  return std::fabs(r);
  // END LAB 01.13
}

Descent train_synchronous(const Problem& problem, Team& team, const DescentOptions& options) {
  // LAB 01.14: train_synchronous
  // > A step is two: each thread sums over its part of the batch; when all have, the weights move.
  Descent descent{.weights = weights_of(problem)};
  Weights& weights = descent.weights;
  descent.loss.push_back(mae_at(problem, weights, team));
  const auto threads = static_cast<std::size_t>(team.size());
  // A cache line between the sums of two threads, wherever the first one begins.
  const std::size_t stride = weights.size() + kCacheLineBytes / sizeof(double);
  std::vector<double> sums(threads * stride);
  for (std::int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    const std::vector<std::int64_t> order = order_of(problem.N, options.seed, epoch);
    for (std::int64_t begin = 0, count = 0; begin < problem.N; begin += count) {
      count = std::min(options.batch, problem.N - begin);
      team.run([&](int thread) {
        const auto mine =
            std::span(sums).subspan(static_cast<std::size_t>(thread) * stride, weights.size());
        std::fill(mine.begin(), mine.end(), 0.0);
        const Range part = chunk(count, thread, team.size());
        for (std::int64_t k = part.begin; k < part.end; ++k)
          add_subgradient(problem, order[static_cast<std::size_t>(begin + k)], weights, 1, mine);
      });
      for (std::size_t j = 0; j < weights.size(); ++j) {
        double sum = 0;
        for (std::size_t t = 0; t < threads; ++t) sum += sums[t * stride + j];
        weights[j] -= options.learning_rate * (sum / static_cast<double>(count));
      }
    }
    descent.loss.push_back(mae_at(problem, weights, team));
  }
  return descent;
  // END LAB 01.14
}

Descent train_hogwild(const Problem& problem, Team& team, const DescentOptions& options) {
  // LAB 01.15: train_hogwild
  // > Nobody waits: between a load and its store others may have stored. Why does it learn?
  Descent descent{.weights = weights_of(problem)};
  const std::size_t size = descent.weights.size();
  descent.loss.push_back(mae_at(problem, descent.weights, team));
  std::vector<std::atomic<double>> shared(size);
  for (std::size_t j = 0; j < size; ++j)
    shared[j].store(descent.weights[j], std::memory_order_relaxed);
  for (std::int64_t epoch = 0; epoch < options.epochs; ++epoch) {
    const std::vector<std::int64_t> order = order_of(problem.N, options.seed, epoch);
    team.run([&](int thread) {
      Weights seen(size), step(size);
      const Range mine = chunk(problem.N, thread, team.size());
      for (std::int64_t k = mine.begin; k < mine.end; ++k) {
        for (std::size_t j = 0; j < size; ++j) seen[j] = shared[j].load(std::memory_order_relaxed);
        std::fill(step.begin(), step.end(), 0.0);
        add_subgradient(problem, order[static_cast<std::size_t>(k)], seen, options.learning_rate,
                        step);
        // What is taken off is what is there now, and not what was seen before.
        for (std::size_t j = 0; j < size; ++j)
          shared[j].store(shared[j].load(std::memory_order_relaxed) - step[j],
                          std::memory_order_relaxed);
      }
    });
    for (std::size_t j = 0; j < size; ++j)
      descent.weights[j] = shared[j].load(std::memory_order_relaxed);
    descent.loss.push_back(mae_at(problem, descent.weights, team));
  }
  return descent;
  // END LAB 01.15
}

}  // namespace aisc
