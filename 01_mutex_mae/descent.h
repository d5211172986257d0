// Learning the weights by subgradient descent: all threads in step, or none waiting for another
// (Recht et al., "Hogwild!: a lock-free approach to parallelizing stochastic gradient descent",
// 2011).
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "01_mutex_mae/problem.h"
#include "01_mutex_mae/team.h"

namespace aisc {

// The M weights and, last, the bias, in F64.
using Weights = std::vector<double>;
Weights weights_of(const Problem& problem);  // (M + 1) where the problem's model stands

// w . x_i + b - y_i at `weights` (M + 1), in F64, the products added one after the other, from
// b - y_i on. Calls problem.watch.
double residual(const Problem& problem, std::int64_t i, std::span<const double> weights);

// The mean of |residual| over all samples, 0 for N = 0: bitwise the same for every team. Does not
// call problem.watch.
double mae_at(const Problem& problem, std::span<const double> weights, Team& team);

// A subgradient of |residual(problem, i, weights)| with respect to the weights is s (x_i, 1): s is
// the sign of the residual, and 0 where that is 0. Adds `factor` times it to `gradient`, and
// returns |residual|. `weights` and `gradient` have M + 1 elements. Asks for the residual once.
double add_subgradient(const Problem& problem, std::int64_t i, std::span<const double> weights,
                       double factor, std::span<double> gradient);

struct DescentOptions {
  std::uint64_t seed = 1;
  std::int64_t epochs = 10;
  std::int64_t batch = 32;  // samples of a step, at least 1 (synchronous; Hogwild takes one)
  double learning_rate = 0.05;
};

struct Descent {
  Weights weights;           // (M + 1) at the end
  std::vector<double> loss;  // (epochs + 1) mae_at, at the start and after each epoch
};

// The order of an epoch: the numbers 0 .. N - 1 shuffled by Fisher and Yates: for i = N - 1 .. 1,
// element i changes places with element Philox(seed, "order", epoch).below(i, i + 1).
std::vector<std::int64_t> order_of(std::int64_t N, std::uint64_t seed, std::int64_t epoch);

// Both ways of learning ask for the residual of each sample once an epoch. Without samples the
// weights stay, and all losses are 0.

// Bulk-synchronous: the next `batch` samples of the epoch's order (the last batch may be shorter)
// are shared out over the threads by chunk; each thread sums the subgradients of its samples, all
// with the same weights; when all are done, the threads' sums are added in the order of threads,
// divided by the number of samples, and weights -= learning_rate * gradient. Equal to one thread up
// to rounding.
Descent train_synchronous(const Problem& problem, Team& team, const DescentOptions& options);

// Hogwild: the weights are M + 1 atomics. Thread t goes through chunk t of the epoch's order; for
// each sample it loads the weights (relaxed), computes the subgradient, and takes learning_rate
// times it from each weight, by a relaxed load and a relaxed store: no lock, and some updates are
// lost. Between epochs the threads wait for each other, so that the loss can be told. With one
// thread it is serial stochastic descent.
Descent train_hogwild(const Problem& problem, Team& team, const DescentOptions& options);

}  // namespace aisc
