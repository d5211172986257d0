// Adafactor in plain loops, and trainings to compare with it: of drawn models, on ranks that each
// have a part.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "04_sharding/adafactor.h"
#include "common/comm/launch.h"
#include "tests/support/drawn.h"
#include "tests/support/late_comm.h"
#include "tests/support/numbers.h"
#include "tests/support/tensors.h"

namespace aisc::oracle {

using Numbers = std::vector<double>;
using Step = Adafactor::Step;
using Slices = Adafactor::Slices;

// F64 sums of some hundred numbers in another order, over ten steps.
inline constexpr double kSame = 1e-12;
inline constexpr Adafactor::Options kDivided{.slices = Slices::Divided};

inline ::testing::AssertionResult are(const std::string& where, const Numbers& found,
                                      const Numbers& expected,
                                      const std::vector<KnownMistake>& mistakes = {},
                                      double tolerance = kSame) {
  CpuDevice host;
  const auto count = static_cast<std::int64_t>(found.size());
  return numbers_are(where, from_doubles(found, {count}, DType::F64, host), expected, mistakes,
                     tolerance);
}

inline Numbers normal(std::size_t count, const std::string& name, double scale = 1) {
  const Philox random(test_seed(), name);
  Numbers x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = scale * random.normal(i);
  return x;
}

inline double root_mean_square(const Numbers& x) {
  return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0) /
                   static_cast<double>(x.size()));
}

inline Numbers joined(const Numbers& a, const Numbers& b) {
  Numbers both = a;
  both.insert(both.end(), b.begin(), b.end());
  return both;
}

// ---- models -------------------------------------------------------------------------------------

inline Parameter parameter(const std::string& name, const Shape& shape, bool decay = false) {
  return whole_parameter(name, shape, Init::constant(0), decay);
}

inline std::int64_t count_of(const std::vector<Parameter>& model) {
  std::int64_t count = 0;
  for (const Parameter& p : model) count += p.shape.count();
  return count;
}

inline std::vector<const Parameter*> pointers(const std::vector<Parameter>& model) {
  std::vector<const Parameter*> all;
  for (const Parameter& p : model) all.push_back(&p);
  return all;
}

// Matrices of drawn sizes, and what is none: a vector, a row, a column, a single number.
inline std::vector<Parameter> drawn_model() {
  const auto size = [](const char* what) { return drawn(what, 2, 11); };
  return {parameter("a", {size("rows of a"), size("columns of a")}, true),
          parameter("b", {size("count of b")}),
          parameter("c", {size("rows of c"), 1}, true),
          parameter("d", {1, size("columns of d")}),
          parameter("e", {size("rows of e"), 700}),  // columns in more than one piece
          parameter("f", {1}),
          parameter("g", {80, size("columns of g")}, true)};
}

// The slices of elements [begin, end) of all parameters one behind the other, of which `weights`
// and `gradients` have all; at most `longest` elements each.
inline std::vector<OptimizerSlice> cut(const std::vector<Parameter>& model, const Tensor& weights,
                                       const Tensor& gradients, Range range,
                                       std::int64_t longest = 1 << 30) {
  std::vector<OptimizerSlice> slices;
  std::int64_t at = 0;
  for (const Parameter& p : model) {
    const std::int64_t stop = std::min(range.end, at + p.shape.count());
    for (std::int64_t i = std::max(range.begin, at); i < stop; i += longest) {
      const std::int64_t count = std::min(longest, stop - i);
      slices.push_back({p.name, weights.view().flat(i, count), gradients.view().flat(i, count),
                        p.decay, &p, i - at});
    }
    at += p.shape.count();
  }
  return slices;
}

// A training: all weights after each step, as the ranks have them together.
struct Training {
  const std::vector<Parameter>& model;
  Adafactor::Options options = {};
  DType dtype = DType::F64;
  int ranks = 1;
  std::int64_t longest = 1 << 30;  // of a slice
  int steps = 10;
  double gradient_scale = 0.7;
  double weight = 0.3;  // the initial weights' size
};

// Gradients grow and shrink, so that some updates are clipped. Some are 0.
inline Numbers gradients_of(const Training& run, int step) {
  const auto count = static_cast<std::size_t>(count_of(run.model));
  Numbers g =
      normal(count, "gradient " + std::to_string(step), step % 4 == 2 ? 20 : 1.0 / (1 + step));
  for (std::size_t i = 0; i < count; i += 5) g[i] = 0;
  return g;
}
inline Numbers first_weights(const Training& run) {
  return normal(static_cast<std::size_t>(count_of(run.model)), "weights", run.weight);
}
inline double learning_rate(int step) { return 0.02 / (1 + step); }

inline std::vector<Numbers> weights_of(const Training& run) {
  const std::int64_t count = count_of(run.model);
  std::vector<Numbers> after(static_cast<std::size_t>(run.steps),
                             Numbers(static_cast<std::size_t>(count)));
  std::mutex mutex;
  launch(late(run.ranks), [&](const Rank& rank) {
    const std::int64_t size = rank.world.size(), r = rank.world.rank();
    const bool divided = run.options.slices == Slices::Divided;
    const Range own{divided ? count * r / size : 0, divided ? count * (r + 1) / size : count};
    const Tensor weights = from_doubles(first_weights(run), {count}, run.dtype, rank.device);
    const Tensor gradients({count}, run.dtype, rank.device);
    Adafactor adafactor(rank, pointers(run.model),
                        cut(run.model, weights, gradients, own, run.longest), run.options);
    for (int step = 0; step < run.steps; ++step) {
      write_doubles(gradients, gradients_of(run, step));
      adafactor.step({.learning_rate = learning_rate(step), .gradient_scale = run.gradient_scale});
      const Numbers now = to_doubles(weights);
      const std::lock_guard lock(mutex);
      std::copy(now.begin() + own.begin, now.begin() + own.end,
                after[static_cast<std::size_t>(step)].begin() + own.begin);
    }
  });
  return after;
}

// ---- the same in plain loops --------------------------------------------------------------------

struct Scalar {
  const Training& run;
  std::vector<Numbers> rows, columns;  // by parameter, means; rows of what is no matrix: v
  int clipped = 0, not_clipped = 0;

  explicit Scalar(const Training& r) : run(r), rows(r.model.size()), columns(r.model.size()) {}

  void step(Numbers& weights, int step) {
    const Numbers gradients = gradients_of(run, step);
    std::size_t at = 0;
    for (std::size_t p = 0; p < run.model.size(); ++p) {
      const auto count = static_cast<std::size_t>(run.model[p].shape.count());
      Numbers g(gradients.begin() + static_cast<std::ptrdiff_t>(at),
                gradients.begin() + static_cast<std::ptrdiff_t>(at + count));
      for (double& x : g) x *= run.gradient_scale;
      update(p, weights.data() + at, g, step + 1);
      at += count;
    }
  }

  void update(std::size_t p, double* x, const Numbers& g, int t) {
    const Adafactor::Options& o = run.options;
    const double beta2 = 1 - std::pow(t, -o.decay_power);
    const Numbers v = second_moment(p, g, beta2);
    Numbers u(g.size());
    for (std::size_t i = 0; i < g.size(); ++i) u[i] = g[i] / std::sqrt(v[i]);
    const double rho =
        o.step == Step::Relative ? std::min(1e-2, 1 / std::sqrt(t)) : learning_rate(t - 1);
    const double alpha = std::max(o.eps2, root_mean_square(Numbers(x, x + g.size()))) * rho;
    const double over = root_mean_square(u) / o.clip;
    ++(over > 1 ? clipped : not_clipped);
    const double decay = run.model[p].decay ? o.weight_decay : 0;
    for (std::size_t i = 0; i < g.size(); ++i)
      x[i] -= alpha * (u[i] / std::max(1.0, over) + decay * x[i]);
  }

  Numbers second_moment(std::size_t p, const Numbers& g, double beta2) {
    const Shape& shape = run.model[p].shape;
    const bool matrix = shape.rank() == 2 && shape[0] > 1 && shape[1] > 1;
    const std::size_t n = matrix ? static_cast<std::size_t>(shape[0]) : g.size();
    const std::size_t m = g.size() / n;
    rows[p].resize(n), columns[p].resize(m);
    const auto average = [&](double& mean, double now) { mean = beta2 * mean + (1 - beta2) * now; };
    Numbers of_rows(n), of_columns(m);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < m; ++j) {
        const double square = g[i * m + j] * g[i * m + j] + run.options.eps1;
        of_rows[i] += square / static_cast<double>(m);
        of_columns[j] += square / static_cast<double>(n);
      }
    for (std::size_t i = 0; i < n; ++i) average(rows[p][i], of_rows[i]);
    for (std::size_t j = 0; j < m; ++j) average(columns[p][j], of_columns[j]);
    if (!matrix) return rows[p];
    const double mean =
        std::accumulate(rows[p].begin(), rows[p].end(), 0.0) / static_cast<double>(n);
    Numbers v(g.size());
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < m; ++j) v[i * m + j] = rows[p][i] * columns[p][j] / mean;
    return v;
  }
};

inline void expect_same(const std::string& where, const std::vector<Numbers>& found,
                        const std::vector<Numbers>& expected, double tolerance = kSame) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t step = 0; step < found.size(); ++step)
    ASSERT_TRUE(are(where + ", step " + std::to_string(step + 1) + ": weights", found[step],
                    expected[step], {}, tolerance));
}

// A training is what the formula makes of it.
inline void expect_formula(const std::string& where, const Training& run,
                           double tolerance = kSame) {
  Scalar reference(run);
  std::vector<Numbers> after;
  Numbers weights = first_weights(run);
  for (int step = 0; step < run.steps; ++step) {
    reference.step(weights, step);
    after.push_back(weights);
  }
  EXPECT_GT(reference.clipped, 0) << "the test is to see clipped updates";
  EXPECT_GT(reference.not_clipped, 0) << "the test is to see updates that are not clipped";
  expect_same(where, weights_of(run), after, tolerance);
}

}  // namespace aisc::oracle
