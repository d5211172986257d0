// Adafactor's second moment of rows and columns: its factors, by hand and of what is known.
#include "04_sharding/factored_moment.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/04_sharding/adafactor_oracle.h"

namespace aisc {
namespace {

using namespace oracle;

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

}  // namespace
}  // namespace aisc
