// Yours to write; from 01_mutex_mae/solution/descent.cpp (stub 95521f1e6c2c).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
// Two ways to learn at the same time: in step, where all threads wait for the slowest once a batch,
// and without any waiting, where some of what a thread learns is lost.
#include "01_mutex_mae/descent.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "01_mutex_mae/mae.h"
#include "01_mutex_mae/partial_sums.h"
#include "common/core/error.h"
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
  // |r| falls with r below 0, rises with r above 0, and at 0 does neither.
  throw NotImplemented("lab 01.13: subgradient", __FILE__, __LINE__);
  // END LAB 01.13
}

Descent train_synchronous(const Problem& problem, Team& team, const DescentOptions& options) {
  // LAB 01.14: train_synchronous
  // A step is two: each thread sums over its part of the batch; when all have, the weights move.
  throw NotImplemented("lab 01.14: train_synchronous", __FILE__, __LINE__);
  // END LAB 01.14
}

Descent train_hogwild(const Problem& problem, Team& team, const DescentOptions& options) {
  // LAB 01.15: train_hogwild
  // Nobody waits: between a load and its store others may have stored. Why does it learn?
  throw NotImplemented("lab 01.15: train_hogwild", __FILE__, __LINE__);
  // END LAB 01.15
}

}  // namespace aisc
