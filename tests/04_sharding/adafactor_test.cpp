// Adafactor: a second moment of rows and columns, of whole parameters, whoever has which part.
#include "04_sharding/adafactor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "common/comm/launch.h"
#include "common/model/emulated_device.h"
#include "common/ops/ops.h"
#include "tests/support/drawn.h"
#include "tests/support/error_says.h"
#include "tests/support/late_comm.h"
#include "tests/support/message_of.h"
#include "tests/support/numbers.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

using Numbers = std::vector<double>;
using Step = Adafactor::Step;
using Slices = Adafactor::Slices;

// F64 sums of some hundred numbers in another order, over ten steps.
constexpr double kSame = 1e-12;
constexpr Adafactor::Options kDivided{.slices = Slices::Divided};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

::testing::AssertionResult are(const std::string& where, const Numbers& found,
                               const Numbers& expected,
                               const std::vector<KnownMistake>& mistakes = {},
                               double tolerance = kSame) {
  CpuDevice host;
  const auto count = static_cast<std::int64_t>(found.size());
  return numbers_are(where, from_doubles(found, {count}, DType::F64, host), expected, mistakes,
                     tolerance);
}

Numbers normal(std::size_t count, const std::string& name, double scale = 1) {
  const Philox random(test_seed(), name);
  Numbers x(count);
  for (std::size_t i = 0; i < count; ++i) x[i] = scale * random.normal(i);
  return x;
}

double root_mean_square(const Numbers& x) {
  return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0) /
                   static_cast<double>(x.size()));
}

// ---- models -------------------------------------------------------------------------------------

Parameter parameter(const std::string& name, const Shape& shape, bool decay = false) {
  return whole_parameter(name, shape, Init::constant(0), decay);
}

std::int64_t count_of(const std::vector<Parameter>& model) {
  std::int64_t count = 0;
  for (const Parameter& p : model) count += p.shape.count();
  return count;
}

std::vector<const Parameter*> pointers(const std::vector<Parameter>& model) {
  std::vector<const Parameter*> all;
  for (const Parameter& p : model) all.push_back(&p);
  return all;
}

// Matrices of drawn sizes, and what is none: a vector, a row, a column, a single number.
std::vector<Parameter> drawn_model() {
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
std::vector<OptimizerSlice> cut(const std::vector<Parameter>& model, const Tensor& weights,
                                const Tensor& gradients, FlatRange range,
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
Numbers gradients_of(const Training& run, int step) {
  const auto count = static_cast<std::size_t>(count_of(run.model));
  Numbers g =
      normal(count, "gradient " + std::to_string(step), step % 4 == 2 ? 20 : 1.0 / (1 + step));
  for (std::size_t i = 0; i < count; i += 5) g[i] = 0;
  return g;
}
Numbers first_weights(const Training& run) {
  return normal(static_cast<std::size_t>(count_of(run.model)), "weights", run.weight);
}
double learning_rate(int step) { return 0.02 / (1 + step); }

std::vector<Numbers> weights_of(const Training& run) {
  const std::int64_t count = count_of(run.model);
  std::vector<Numbers> after(static_cast<std::size_t>(run.steps),
                             Numbers(static_cast<std::size_t>(count)));
  std::mutex mutex;
  launch({.ranks = run.ranks,
          .device = {.poison = true},
          .bind = false,
          .internals = {.decorate = make_late_comm}},
         [&](const Rank& rank) {
           const std::int64_t size = rank.world.size(), r = rank.world.rank();
           const bool divided = run.options.slices == Slices::Divided;
           const FlatRange own{divided ? count * r / size : 0,
                               divided ? count * (r + 1) / size : count};
           const Tensor weights = from_doubles(first_weights(run), {count}, run.dtype, rank.device);
           const Tensor gradients({count}, run.dtype, rank.device);
           Adafactor adafactor(rank, pointers(run.model),
                               cut(run.model, weights, gradients, own, run.longest), run.options);
           for (int step = 0; step < run.steps; ++step) {
             write_doubles(gradients, gradients_of(run, step));
             adafactor.step(
                 {.learning_rate = learning_rate(step), .gradient_scale = run.gradient_scale});
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

// ---- the factors --------------------------------------------------------------------------------

template <class T>
struct Factored {
  std::vector<T> row, column, row_factor, column_factor;

  Factored(std::size_t n, std::size_t m) : row(n), column(m), row_factor(n), column_factor(m) {}
  void step(const std::vector<T>& row_sums, const std::vector<T>& column_sums, double beta2) {
    factor_second_moment<T>({row, column}, {row_sums, column_sums}, beta2,
                            {row_factor, column_factor});
  }
  // The sums of an n x m matrix of squares.
  void step(const std::vector<T>& squares, double beta2) {
    std::vector<T> row_sums(row.size()), column_sums(column.size());
    for (std::size_t i = 0; i < squares.size(); ++i) {
      row_sums[i / column.size()] += squares[i];
      column_sums[i % column.size()] += squares[i];
    }
    step(row_sums, column_sums, beta2);
  }
  double v(std::size_t i, std::size_t j) const {
    const double root = static_cast<double>(row_factor[i]) * static_cast<double>(column_factor[j]);
    return 1 / (root * root);
  }
};

Numbers joined(const Numbers& a, const Numbers& b) {
  Numbers both = a;
  both.insert(both.end(), b.begin(), b.end());
  return both;
}

TEST(Adafactor, TwoRowsAndThreeColumnsByHand) {
  Factored<double> f(2, 3);
  const std::string where = "gradient 3 0 4, 0 5 0: ";
  f.step({9, 0, 16, 0, 25, 0}, 0);
  EXPECT_TRUE(are(where + "R and C", joined(f.row, f.column), {25, 25, 9, 25, 16}));
  const double root2 = std::sqrt(2);
  EXPECT_TRUE(are(where + "row factors", f.row_factor, {root2, root2},
                  {{"nobody divided by the sum of R", {.2, .2}},
                   {"it were the mean of R, not its sum", {1, 1}},
                   {"no root were taken", {2, 2}},
                   {"it were R / sum of R, not one over it", {1 / root2, 1 / root2}}}));
  EXPECT_TRUE(are(where + "column factors", f.column_factor, {1 / 3.0, .2, .25},
                  {{"no root were taken", {1 / 9.0, 1 / 25.0, 1 / 16.0}},
                   {"they were the roots of C, not one over them", {3, 5, 4}},
                   {"columns were divided by the sum, too",
                    {std::sqrt(50 / 9.0), root2, std::sqrt(50 / 16.0)}}}));
}

TEST(Adafactor, TheNextMovingAverageByHand) {
  Factored<double> f(2, 3);
  f.row = {25, 25}, f.column = {9, 25, 16};
  f.step({3, 3}, {2, 2, 2}, .75);
  const std::string where = "R 25 25, C 9 25 16, then sums 3 3 and 2 2 2, beta2 = 3/4: ";
  EXPECT_TRUE(are(where + "R and C", joined(f.row, f.column), {19.5, 19.5, 7.25, 19.25, 12.5},
                  {{"beta2 and 1 - beta2 were exchanged", {8.5, 8.5, 3.75, 7.75, 5.5}},
                   {"what was before were forgotten", {.75, .75, .5, .5, .5}},
                   {"it were a sum, not an average", {28, 28, 11, 27, 18}}}));
  EXPECT_TRUE(are(where + "V of the second column", {f.v(0, 1), f.v(1, 1)}, {19.25 / 2, 19.25 / 2},
                  {{"V were that of before the step", {12.5, 12.5}},
                   {"V were that of this step's gradient alone", {1, 1}}}));
}

// U of the first example is the root of 2 wherever the gradient is not 0, its mean square 1.
TEST(Adafactor, AStepByHand) {
  launch({.bind = false}, [](const Rank& rank) {
    const std::vector<Parameter> model{parameter("w", {2, 3})};
    const Tensor w = from_doubles({1, 1, 1, -1, -1, -1}, {6}, DType::F64, rank.device);
    const Tensor g = from_doubles({3, 0, 4, 0, -5, 0}, {6}, DType::F64, rank.device);
    Adafactor adafactor(rank, pointers(model), cut(model, w, g, {0, 6}), {});
    adafactor.step({.learning_rate = 7});
    const double moved = .01 * std::sqrt(2);
    EXPECT_TRUE(are("weights", to_doubles(w), {1 - moved, 1, 1 - moved, -1, -1 + moved, -1}));
  });
}

// If g^2 = a b^T, then V = g^2, as long as a and b stay what they are.
TEST(Adafactor, RecoversARankOneSquareExactly) {
  const auto n = static_cast<std::size_t>(drawn("rows of rank one", 2, 40));
  const auto m = static_cast<std::size_t>(drawn("columns of rank one", 2, 40));
  const Numbers a = normal(n, "a"), b = normal(m, "b");
  Factored<double> f(n, m);
  double mean = 0;
  for (int t = 1; t <= 20; ++t) {
    // Of the same size in the first ten steps, then of others.
    const double size = t <= 10 ? 1 : 1 + t % 3, beta2 = 1 - std::pow(t, -.8);
    mean = beta2 * mean + (1 - beta2) * size * size;
    Numbers squares(n * m), ratios(n * m);
    for (std::size_t i = 0; i < n * m; ++i) squares[i] = std::pow(size * a[i / m] * b[i % m], 2);
    f.step(squares, beta2);
    for (std::size_t i = 0; i < n * m; ++i)
      ratios[i] = f.v(i / m, i % m) / std::pow(a[i / m] * b[i % m], 2);
    ASSERT_TRUE(are("step " + std::to_string(t) + ": V / g^2", ratios, Numbers(n * m, mean)));
  }
}

// A float has 24 bits: a sum of these rows in float would stop growing.
TEST(Adafactor, SumsInDoubleWhatIsFloat) {
  Factored<float> f(1 << 14, 2);
  std::vector<float> rows(1 << 14, 0.5F);
  rows[0] = 0x1p24F;
  f.step(rows, {1, 4}, 0);
  const double sum = 0x1p24 + 0.5 * ((1 << 14) - 1);
  EXPECT_TRUE(are("factors of rows 2^24, 1/2, 1/2, ..., squared",
                  {std::pow(f.row_factor[0], 2), std::pow(f.row_factor[9], 2) / sum},
                  {sum / 0x1p24, 2}, {{"the sum were kept in float", {1, 2 * 0x1p24 / sum}}},
                  1e-6));
  EXPECT_TRUE(are("column factors", {f.column_factor[0], f.column_factor[1]}, {1, .5}));
}

TEST(Adafactor, RowsOfPaddingHaveAFactorOfZero) {
  Factored<double> f(3, 2);
  f.step({1, 1, 3, 3, 0, 0}, 0);
  EXPECT_TRUE(are("row sums 2, 6, 0: row factors", f.row_factor, {2, std::sqrt(8 / 6.0), 0}))
      << "NaN or infinity: 0 was divided by 0.";
  EXPECT_TRUE(are("column factors", f.column_factor, {.5, .5}));
}

// ---- the optimizer ------------------------------------------------------------------------------

void expect_same(const std::string& where, const std::vector<Numbers>& found,
                 const std::vector<Numbers>& expected, double tolerance = kSame) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t step = 0; step < found.size(); ++step)
    ASSERT_TRUE(are(where + ", step " + std::to_string(step + 1) + ": weights", found[step],
                    expected[step], {}, tolerance));
}

std::vector<Numbers> scalar(const Training& run) {
  Scalar reference(run);
  std::vector<Numbers> after;
  Numbers weights = first_weights(run);
  for (int step = 0; step < run.steps; ++step) {
    reference.step(weights, step);
    after.push_back(weights);
  }
  EXPECT_GT(reference.clipped, 0) << "the test is to see clipped updates";
  EXPECT_GT(reference.not_clipped, 0) << "the test is to see updates that are not clipped";
  return after;
}

TEST(Adafactor, IsTheFormulaInPlainLoops) {
  const std::vector<Parameter> model = drawn_model();
  const Training relative{.model = model, .options = {.weight_decay = .1}};
  expect_same("relative", weights_of(relative), scalar(relative));
  const Training scheduled{.model = model, .options = {.step = Step::Scheduled}};
  expect_same("scheduled", weights_of(scheduled), scalar(scheduled));
  const Training others{.model = model,
                        .options = {.clip = .8, .decay_power = .5, .eps1 = 1e-3, .eps2 = .4}};
  expect_same("other options", weights_of(others), scalar(others));
  // 2^-24 of each number, in sums of a hundred and over ten steps.
  const Training in_f32{.model = model, .dtype = DType::F32};
  expect_same("in F32", weights_of(in_f32), scalar(in_f32), 1e-5);
}

// Large enough for threads and for several blocks.
TEST(Adafactor, IsTheFormulaForLargeMatrices) {
  const std::vector<Parameter> model{parameter("a", {drawn("rows of large", 70, 99), 513}),
                                     parameter("b", {drawn("columns of large", 17000, 19000)})};
  const Training run{.model = model, .steps = 4};
  expect_same("large", weights_of(run), scalar(run));
}

// Of the small model some of 7 ranks have nothing.
TEST(Adafactor, DividedIsTheSameAsWhole) {
  for (const auto& model : {drawn_model(), {parameter("a", {2, 2}), parameter("b", {1})}}) {
    const std::vector<Numbers> whole = weights_of({.model = model});
    for (const int ranks : {1, 2, 3, 4, 7})
      expect_same(std::to_string(count_of(model)) + " elements on " + std::to_string(ranks),
                  weights_of({.model = model, .options = kDivided, .ranks = ranks}), whole);
  }
}

TEST(Adafactor, SlicesMayBeManyOfOneParameter) {
  const std::vector<Parameter> model = drawn_model();
  const std::int64_t longest = drawn("elements of a slice", 3, 9);
  const auto whole = weights_of({.model = model});
  const std::string where = "slices of " + std::to_string(longest);
  expect_same(where, weights_of({.model = model, .longest = longest}), whole);
  expect_same(where + " on 3 ranks",
              weights_of({.model = model, .options = kDivided, .ranks = 3, .longest = longest}),
              whole);
}

// Without slices that are divided every rank does the same, alone.
TEST(Adafactor, AllOnEveryRankSendsNothing) {
  const std::vector<Parameter> model = drawn_model();
  expect_same("2 ranks, all slices on both", weights_of({.model = model, .ranks = 2}),
              weights_of({.model = model}));
  launch({.ranks = 2, .bind = false}, [&](const Rank& rank) {
    const Tensor w = random_tensor({count_of(model)}, DType::F64, rank.device, "w");
    Adafactor adafactor(rank, pointers(model), cut(model, w, w, {0, w.count()}), {});
    adafactor.step({.learning_rate = 0});
    for (const CommStats::Row& row : rank.world.stats().rows) EXPECT_EQ(row.calls, 0);
  });
}

// A table of five rows, of which two are padding, is one of three.
TEST(Adafactor, PaddingIsAsIfItWereNotThere) {
  const std::vector<Parameter> model{parameter("table", {3, 4})};
  std::vector<Parameter> padded{parameter("table", {5, 4})};
  padded[0].init = Init::normal(1, 12);
  for (const int ranks : {1, 2, 4, 7})
    launch({.ranks = ranks, .bind = false}, [&](const Rank& rank) {
      const std::int64_t r = rank.world.rank(), size = rank.world.size();
      const auto zeros = [&](std::int64_t n) {
        return Tensor::zeros({n}, DType::F64, rank.device);
      };
      const Tensor w = zeros(12), g = zeros(12), padded_w = zeros(20), padded_g = zeros(20);
      write_doubles(w, normal(12, "table"));
      rank.device.copy(padded_w.view().flat(0, 12), w);
      Adafactor one(rank, pointers(model), cut(model, w, g, {0, 12}), {.weight_decay = .1});
      const FlatRange own{20 * r / size, 20 * (r + 1) / size};
      Adafactor other(rank, pointers(padded), cut(padded, padded_w, padded_g, own),
                      {.weight_decay = .1, .slices = Slices::Divided});
      for (int step = 0; step < 5; ++step) {
        write_doubles(g, normal(12, "gradient " + std::to_string(step), 1 + step % 2));
        rank.device.copy(padded_g.view().flat(0, 12), g);
        one.step({.learning_rate = 0});
        other.step({.learning_rate = 0});
      }
      Numbers expected = to_doubles(w);
      expected.resize(20);
      const Numbers found = to_doubles(padded_w);
      EXPECT_TRUE(are(
          std::to_string(ranks) + " ranks, rank " + std::to_string(r) + ": its part of the table",
          {found.begin() + own.begin, found.begin() + own.end},
          {expected.begin() + own.begin, expected.begin() + own.end}));
    });
}

// A matrix of 8 x 6 with a gradient of signs, so that U is the gradient's sign times what has grown
// since the last step. Returns how far the weights move in step `step`, as a root mean square.
double moved(const Adafactor::Options& options, double weight, std::int64_t step, double grown,
             double rate = 0) {
  double result = 0;
  launch({.bind = false}, [&](const Rank& rank) {
    const std::vector<Parameter> model{parameter("w", {8, 6})};
    const Tensor w = from_doubles(Numbers(48, weight), {48}, DType::F64, rank.device);
    Numbers signs = normal(48, "signs");
    for (double& x : signs) x = x > 0 ? 1 : -1;
    const Tensor g = from_doubles(signs, {48}, DType::F64, rank.device);
    Adafactor adafactor(rank, pointers(model), cut(model, w, g, {0, 48}), options);
    adafactor.step({.learning_rate = rate});
    adafactor.resume(step - 1);
    ops::fill(w, weight);
    adafactor.step({.learning_rate = rate, .gradient_scale = grown});
    Numbers way = to_doubles(w);
    for (double& x : way) x -= weight;
    result = root_mean_square(way);
  });
  return result;
}

TEST(Adafactor, ClipsUpdates) {
  constexpr double kTen = 10;
  const double beta2 = 1 - std::pow(2, -.8);  // in step 2
  const double free = kTen / std::sqrt(beta2 + (1 - beta2) * kTen * kTen);
  EXPECT_GT(free, 1.3) << "the test is to see a long update";
  EXPECT_NEAR(moved({.clip = kInfinity}, 1, 2, kTen), .01 * free, kSame) << "without clipping";
  EXPECT_NEAR(moved({}, 1, 2, kTen), .01, kSame) << "to a root mean square of 1";
  EXPECT_NEAR(moved({.clip = .5}, 1, 2, kTen), .005, kSame) << "to one of 1/2";
  EXPECT_NEAR(moved({.clip = 1.3}, 1, 2, kTen), .013, kSame) << "to one of 1.3";
  const double small = .1 / std::sqrt(beta2 + (1 - beta2) * .01);
  EXPECT_NEAR(moved({}, 1, 2, .1), .01 * small, kSame) << "a short update stays as it is";
}

TEST(Adafactor, StepsAreRelative) {
  EXPECT_NEAR(moved({}, 2, 2, 1), .02, kSame) << "a hundredth of weights of 2";
  EXPECT_NEAR(moved({}, 0, 2, 1), 1e-5, kSame) << "weights of 0 count as 1/1000";
  EXPECT_NEAR(moved({.eps2 = .1}, 0, 2, 1), 1e-3, kSame) << "or as eps2";
  EXPECT_NEAR(moved({}, 1, 10000, 1), .01, kSame) << "up to step 10,000";
  EXPECT_NEAR(moved({}, 1, 40000, 1), .005, kSame) << "then as 1 / sqrt t";
  EXPECT_NEAR(moved({}, 1, 2, 1, .3), .01, kSame) << "whatever the learning rate is";
  EXPECT_NEAR(moved({.step = Step::Scheduled}, 2, 2, 1, .3), .6, kSame)
      << "the learning rate, times weights of 2";
}

// The master moves as weights in F32 do, bit by bit; the weight is a copy of it.
TEST(Adafactor, MastersMoveAndWeightsFollow) {
  launch({.bind = false}, [](const Rank& rank) {
    const std::vector<Parameter> model{parameter("a", {9, 7}, true), parameter("b", {5})};
    const std::int64_t n = count_of(model);
    for (const DType gradient : {DType::BF16, DType::F32}) {
      const Tensor w16 = random_tensor({n}, DType::BF16, rank.device, "w");
      const Tensor w32({n}, DType::F32, rank.device), g32({n}, DType::F32, rank.device);
      const Tensor g({n}, gradient, rank.device);
      ops::cast(w32, w16);
      Adafactor one(rank, pointers(model), cut(model, w16, g, {0, n}), {.weight_decay = .1});
      Adafactor other(rank, pointers(model), cut(model, w32, g32, {0, n}), {.weight_decay = .1});
      for (int step = 0; step < 20; ++step) {
        write_doubles(g, normal(static_cast<std::size_t>(n), "gradient " + std::to_string(step)));
        ops::cast(g32, g);
        one.step({.learning_rate = 0});
        other.step({.learning_rate = 0});
      }
      Numbers masters;
      for (const Optimizer::State& state : one.state())
        if (state.name.ends_with("/master")) masters = joined(masters, to_doubles(state.value));
      EXPECT_TRUE(are("masters of BF16 weights", masters, to_doubles(w32), {}, 0));
      const Tensor rounded({n}, DType::BF16, rank.device);
      ops::cast(rounded, w32);
      EXPECT_TRUE(same_bits(w16, rounded)) << "a weight is its master, rounded";
    }
  });
}

// One all-reduce of the rows' and columns' sums, one of 2 numbers a parameter.
TEST(Adafactor, SendsTwoSumsAStep) {
  const std::vector<Parameter> model = drawn_model();
  std::int64_t n_and_m = 0;
  for (const std::size_t p : {0, 4, 6}) n_and_m += model[p].shape[0] + model[p].shape[1];
  for (const DType dtype : {DType::F32, DType::F64})
    launch({.ranks = 3, .bind = false}, [&](const Rank& rank) {
      const std::int64_t count = count_of(model), r = rank.world.rank();
      const Tensor w = random_tensor({count}, dtype, rank.device, "w");
      Adafactor adafactor(rank, pointers(model),
                          cut(model, w, w, {count * r / 3, count * (r + 1) / 3}), kDivided);
      const CommStats before = rank.world.stats();
      adafactor.step({.learning_rate = 0});
      const CommStats after = rank.world.stats();
      const auto all_reduce = [](const CommStats& stats) { return stats[CommOp::AllReduce]; };
      EXPECT_EQ(all_reduce(after).calls - all_reduce(before).calls, 2);
      EXPECT_EQ(all_reduce(after).payload_bytes - all_reduce(before).payload_bytes,
                n_and_m * static_cast<std::int64_t>(size_of(dtype)) + 7 * 2 * 8);
      std::int64_t calls = 0;
      for (std::size_t op = 0; op < after.rows.size(); ++op)
        calls += after.rows[op].calls - before.rows[op].calls;
      EXPECT_EQ(calls, 2) << "nothing else is sent";
    });
}

TEST(Adafactor, GoesOnFromItsState) {
  launch({.bind = false}, [](const Rank& rank) {
    const std::vector<Parameter> model{parameter("a", {3, 5}), parameter("b", {4})};
    for (const DType dtype : {DType::F64, DType::BF16}) {
      const Tensor w = random_tensor({19}, dtype, rank.device, "w"), g({19}, dtype, rank.device);
      Adafactor one(rank, pointers(model), cut(model, w, g, {0, 19}), {});
      const auto step = [&](Adafactor& adafactor, int number) {
        write_doubles(g, normal(19, "gradient " + std::to_string(number)));
        adafactor.step({.learning_rate = 0});
      };
      step(one, 0), step(one, 1);
      const Tensor copy = w.clone();
      Adafactor other(rank, pointers(model), cut(model, copy, g, {0, 19}), {});
      const auto from = one.state(), to = other.state();
      for (std::size_t i = 0; i < from.size(); ++i) rank.device.copy(to[i].value, from[i].value);
      other.resume(one.steps());
      step(one, 2), step(other, 2);
      EXPECT_TRUE(same_bits(w, copy)) << name_of(dtype);
    }
  });
}

// Least squares: y = x W + b, without noise. The loss is the mean of the squares.
struct LeastSquares {
  static constexpr std::size_t kSamples = 64, kIn = 6, kOut = 4;
  Numbers x = normal(kSamples * kIn, "x"), w = normal(kIn * kOut, "true weights"),
          b = normal(kOut, "true bias");

  // Of weights W (6, 4) and b (4); writes the gradient, too.
  double loss(const Numbers& weights, Numbers& gradient) const {
    gradient.assign(weights.size(), 0);
    double sum = 0;
    for (std::size_t s = 0; s < kSamples; ++s)
      for (std::size_t o = 0; o < kOut; ++o) {
        double error = weights[kIn * kOut + o] - b[o];
        for (std::size_t i = 0; i < kIn; ++i)
          error += x[s * kIn + i] * (weights[i * kOut + o] - w[i * kOut + o]);
        const double d = 2 * error / (kSamples * kOut);
        for (std::size_t i = 0; i < kIn; ++i) gradient[i * kOut + o] += d * x[s * kIn + i];
        gradient[kIn * kOut + o] += d;
        sum += error * error / (kSamples * kOut);
      }
    return sum;
  }
};

TEST(Adafactor, Learns) {
  const LeastSquares problem;
  const std::vector<Parameter> model{parameter("w", {6, 4}), parameter("b", {4})};
  launch({.bind = false}, [&](const Rank& rank) {
    const Tensor w = from_doubles(normal(28, "start", .5), {28}, DType::F32, rank.device);
    const Tensor g({28}, DType::F32, rank.device);
    Adafactor adafactor(rank, pointers(model), cut(model, w, g, {0, 28}),
                        {.step = Step::Scheduled});
    Numbers gradient;
    const double untrained = problem.loss(to_doubles(w), gradient);
    // Half as many steps, or steps half as long, reach the bounds in each of 2,000 drawn problems;
    // both together are too short a way for 7 of them.
    constexpr int kSteps = 600;
    for (int step = 0; step < kSteps; ++step) {
      problem.loss(to_doubles(w), gradient);
      write_doubles(g, gradient);
      adafactor.step({.learning_rate = .2 * (1 - step / static_cast<double>(kSteps))});
    }
    const double trained = problem.loss(to_doubles(w), gradient);
    EXPECT_GT(untrained, 1) << "the test is to start from a loss";
    EXPECT_LT(trained, untrained / 1000) << "of the untrained weights " << untrained;
    EXPECT_LT(trained, 1e-3);
  });
}

// ---- what is given ------------------------------------------------------------------------------

TEST(AdafactorGiven, NamesItsState) {
  launch({.bind = false}, [](const Rank& rank) {
    const std::vector<Parameter> model{parameter("a", {3, 5}), parameter("b", {4})};
    const Tensor w = random_tensor({19}, DType::BF16, rank.device, "w");
    const Adafactor adafactor(rank, pointers(model), cut(model, w, w, {0, 19}, 10), {});
    std::vector<std::string> found;
    for (const Optimizer::State& state : adafactor.state())
      found.push_back(state.name + " " + std::to_string(state.value.count()) + " " +
                      (state.parameter ? "of " + state.parameter->name : "of all") + " " +
                      std::to_string(state.begin));
    const std::vector<std::string> expected{"a/master 10 of a 0", "a/master 5 of a 10",
                                            "b/master 4 of b 0",  "b/v 4 of b 0",
                                            "a/row 3 of all 0",   "a/column 5 of all 0"};
    EXPECT_EQ(found, expected);
    EXPECT_TRUE(adafactor.own_state().empty());
  });
}

// Of what is no matrix every element has a second moment of its own.
TEST(AdafactorGiven, VectorsHaveWholeMoments) {
  const std::vector<Parameter> model{parameter("b", {drawn("count of vector", 5, 90)}, true),
                                     parameter("c", {7, 1}), parameter("d", {1, 3})};
  for (const int ranks : {1, 3}) {
    const Training run{
        .model = model, .options = {.weight_decay = .1, .slices = Slices::Divided}, .ranks = ranks};
    expect_same(std::to_string(ranks) + " ranks", weights_of(run), scalar(run));
  }
}

std::int64_t optimizer_bytes(const Device& device) {
  return device.ledger()[Purpose::Optimizer].live_bytes;
}

// n + m numbers for a matrix, on each rank, however little of it a rank has.
TEST(AdafactorGiven, KeepsRowsAndColumnsOnly) {
  const std::vector<Parameter> model{parameter("a", {70, 50}), parameter("b", {9}),
                                     parameter("c", {2, 30})};
  const std::int64_t n = count_of(model);
  const auto bytes = [&](const Rank& rank, DType dtype, Slices slices, FlatRange own) {
    const Tensor w = random_tensor({n}, dtype, rank.device, "w");
    const std::int64_t before = optimizer_bytes(rank.device);
    const Adafactor adafactor(rank, pointers(model), cut(model, w, w, own), {.slices = slices});
    return optimizer_bytes(rank.device) - before;
  };
  launch({.bind = false}, [&](const Rank& rank) {
    constexpr std::int64_t kNumbers = 70 + 50 + 9 + 2 + 30;
    EXPECT_EQ(bytes(rank, DType::F32, Slices::OfAll, {0, n}), 4 * kNumbers);
    EXPECT_EQ(bytes(rank, DType::F64, Slices::OfAll, {0, n}), 8 * kNumbers);
    EXPECT_EQ(bytes(rank, DType::BF16, Slices::OfAll, {0, n}), 4 * (kNumbers + n)) << "and masters";
  });
  launch({.ranks = 3, .bind = false}, [&](const Rank& rank) {
    // Rank 0 has a part of a, rank 1 nothing, rank 2 the others.
    const std::vector<FlatRange> parts{{0, 3507}, {3507, 3507}, {3507, n}};
    const auto r = static_cast<std::size_t>(rank.world.rank());
    EXPECT_EQ(bytes(rank, DType::F64, Slices::Divided, parts[r]),
              8 * (152 + std::vector<std::int64_t>{7, 0, 2}[r]))
        << "rank " << r;
  });
}

// Without numbers: the same memory and the same messages, and time passes.
TEST(AdafactorGiven, RunsWithoutNumbers) {
  Machine machine;
  machine.name = "by hand";
  machine.flops = {{DType::F32, 1e12}};
  machine.vector_flops = 1e12;
  machine.memory_bandwidth = 1;
  machine.ranks_per_node = 2;
  machine.node_link = {1e-5, 1e-9};
  const std::vector<Parameter> model{parameter("a", {300, 500}), parameter("b", {64})};
  const std::int64_t n = count_of(model);
  launch(on_machine(machine, 2, {.meta = true}), [&](const Rank& rank) {
    const Tensor w({n}, DType::BF16, rank.device), g({n}, DType::F32, rank.device);
    const std::int64_t half = n / 2, r = rank.world.rank();
    Adafactor adafactor(rank, pointers(model), cut(model, w, g, {half * r, half * (r + 1)}),
                        kDivided);
    EXPECT_EQ(optimizer_bytes(rank.device), 4 * (half + 800 + 64 * r));
    const CommStats::Row before = rank.world.stats()[CommOp::AllReduce];
    EXPECT_EQ(before.calls, 0) << "there is nothing to agree on";
    double bytes = 0;
    rank.device.listen([&](const OpCost& cost) {
      if (std::string_view(cost.operation) == "adafactor") bytes += cost.bytes;
    });
    const double began = rank.clock.now();
    adafactor.step({.learning_rate = .1});
    const CommStats::Row after = rank.world.stats()[CommOp::AllReduce];
    EXPECT_EQ(after.calls - before.calls, 2);
    EXPECT_EQ(after.payload_bytes - before.payload_bytes, 800 * 4 + 2 * 16);
    // Each pass reads the gradient. The first writes the moments of the vector, the second reads
    // these and the weights, the third writes master and weight, too.
    EXPECT_EQ(bytes, static_cast<double>(half * (4 + 8 + 14) + 64 * r * (8 + 4 + 4)));
    EXPECT_GE(rank.clock.now() - began, bytes) << "at a byte a second";
  });
}

// Memory that is neither the host's nor without numbers.
class Elsewhere final : public Device {
 public:
  Elsewhere() : Device(0) {}
  ~Elsewhere() override { trim(); }
  const char* name() const override { return "elsewhere"; }
  DeviceKind kind() const override { return DeviceKind::Cuda; }

 private:
  void* do_allocate(std::size_t bytes) override { return std::malloc(bytes); }
  void do_free(void* block) noexcept override { std::free(block); }
  void do_poison(void*, std::size_t) override {}
  Work do_copy(View, ConstView, Queue) override { return {}; }
  void do_zero(void*, std::size_t) override {}
};

// The message of making one of F32 weights on one rank, after `change` of its slices and options.
std::vector<Parameter> two_parameters() { return {parameter("a", {3, 5}), parameter("b", {4})}; }
template <class Change>
std::string error(const std::vector<Parameter>& model, const Change& change, Device& device,
                  DType dtype = DType::F32) {
  std::string message;
  launch({.bind = false}, [&](const Rank& rank) {
    const Tensor w({19}, dtype, device);
    std::vector<OptimizerSlice> slices = cut(model, w, w, {0, 19});
    Adafactor::Options options;
    change(slices, options);
    message = message_of([&] { Adafactor(rank, pointers(model), slices, options); });
  });
  return message;
}

TEST(AdafactorGiven, SaysWhichOptionsMakeNoSense) {
  CpuDevice host;
  const auto with = [&](const Adafactor::Options& wrong) {
    return error(
        two_parameters(), [&](auto&, auto& options) { options = wrong; }, host);
  };
  EXPECT_EQ(with({}), "");
  EXPECT_EQ(with({.clip = 0}),
            "Adafactor: clip 0, decay_power 0.8, eps1 1e-30, eps2 0.001, weight_decay 0: expected "
            "> 0, > 0, at least 1.18e-38, >= 0, >= 0");
  EXPECT_NE(with({.clip = std::nan("")}), "");
  EXPECT_NE(with({.decay_power = 0}), "");
  EXPECT_NE(with({.eps1 = 1e-40}), "");
  EXPECT_NE(with({.eps2 = -1}), "");
  EXPECT_NE(with({.weight_decay = -1}), "");
}

TEST(AdafactorGiven, SaysWhichSlicesAreWrong) {
  CpuDevice host;
  const std::vector<Parameter> model = two_parameters();
  const auto with = [&](const auto& change) { return error(model, change, host); };
  const Parameter other = parameter("other", {4});
  for (const Parameter* unknown : {static_cast<const Parameter*>(nullptr), &other})
    EXPECT_EQ(with([&](auto& slices, auto&) { slices[1].parameter = unknown; }),
              "Adafactor: b is a slice of none of 2 parameters");
  EXPECT_EQ(with([](auto& slices, auto&) { slices[1].begin = 1; }),
            "Adafactor: b is elements 1 to 5 of 4");
  EXPECT_EQ(with([](auto& slices, auto&) { slices[0].begin = -1; }),
            "Adafactor: a is elements -1 to 14 of 15");
  EXPECT_EQ(with([](auto& slices, auto&) { slices.pop_back(); }),
            "Adafactor: slices have 0 elements of b, expected each of its 4 once");
  EXPECT_TRUE(error_says(
      [&] {
        launch({.ranks = 2, .bind = false}, [&](const Rank& rank) {
          const Tensor w({19}, DType::F32, rank.device);
          Adafactor(rank, pointers(model), cut(model, w, w, {0, 19}), kDivided);
        });
      },
      {"slices have 30 elements of a, expected each of its 15 once"}))
      << "both ranks have everything, and are to divide it";
  std::vector<Parameter> split = model;
  split[0] = split_parameter("a", {6, 5}, 0, 1, 2, Init::constant(0), true);
  EXPECT_EQ(error(
                split, [](auto&, auto&) {}, host),
            "Adafactor: a is (3, 5) of (6, 5): other ranks have some of its rows or columns");
}

TEST(AdafactorGiven, SaysWhichWeightsItCannotMove) {
  CpuDevice host, other;
  Elsewhere elsewhere;
  const auto with = [&](Device& device, DType dtype) {
    return error(
        two_parameters(), [](auto&, auto&) {}, device, dtype);
  };
  const auto with_b_of = [&](DType dtype, Device& device) {
    const Tensor b({4}, dtype, device);
    return error(
        two_parameters(), [&](auto& slices, auto&) { slices[1].weight = b; }, host);
  };
  EXPECT_EQ(with(host, DType::F16), "Adafactor: a is F16, expected F32, BF16 or F64");
  EXPECT_EQ(with(elsewhere, DType::F32),
            "Adafactor: a is on elsewhere, expected the host, and one device of all weights");
  EXPECT_EQ(with_b_of(DType::F32, other),
            "Adafactor: b is on cpu, expected the host, and one device of all weights");
  EXPECT_EQ(with_b_of(DType::F64, host), "Adafactor: 1 of 2 slices are F64, expected all or none");
}

}  // namespace
}  // namespace aisc
