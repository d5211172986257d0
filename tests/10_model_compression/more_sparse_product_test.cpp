// Compressed rows: by hand, there and back, and products against the dense ones.
#include "10_model_compression/more/sparse_product.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>

#include "common/core/range.h"
#include "common/core/rng.h"
#include "tests/support/drawn.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

using ::testing::ElementsAre;

// Of F32 sums of some hundred products of numbers about 1, in another order.
constexpr double kOfRoundedSums = 1e-4;

std::vector<float> some_numbers(std::int64_t count, const std::string& name, double share = 1) {
  const Philox random(test_seed(), name), stays(test_seed(), name + ": stays");
  std::vector<float> numbers(index(count));
  for (std::uint64_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<double>(stays.below(i, 1000)) < 1000 * share
                     ? static_cast<float>(random.normal(i))
                     : 0.f;
  return numbers;
}

TEST(CsrGiven, RowsByHand) {
  const SparseMatrix m = sparse_of(std::vector<float>{0, 5, 0, 0, 0, 0, 7, 0, 8}, 3, 3);
  EXPECT_THAT(m.values, ElementsAre(5, 7, 8));
  EXPECT_THAT(m.columns, ElementsAre(1, 0, 2));
  EXPECT_THAT(m.row_starts, ElementsAre(0, 1, 1, 3));
  EXPECT_EQ(m.bytes(), 3 * 8 + 4 * 4);
  EXPECT_THAT(dense_of(m), ElementsAre(0, 5, 0, 0, 0, 0, 7, 0, 8));
}

// 10 + 5 * 2, 20, 30 + 7 * 1 + 8 * 3.
TEST(CsrGiven, ProductByHand) {
  const SparseMatrix m = sparse_of(std::vector<float>{0, 5, 0, 0, 0, 0, 7, 0, 8}, 3, 3);
  std::vector<float> y(3);
  sparse_linear(y, std::vector<float>{1, 2, 3}, m, std::vector<float>{10, 20, 30});
  EXPECT_THAT(y, ElementsAre(20, 20, 61));
}

TEST(CsrGiven, ThereAndBack) {
  for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{0, 5},
                                      {5, 0},
                                      {1, 1},
                                      {7, 13},
                                      {drawn("rows of CSR", 2, 40), 31}})
    for (const double share : {0.0, 0.1, 1.0}) {
      const std::vector<float> dense = some_numbers(rows * columns, "there and back", share);
      EXPECT_EQ(dense_of(sparse_of(dense, rows, columns)), dense) << rows << " x " << columns;
    }
}

TEST(CsrGiven, ProductIsTheDenseOne) {
  for (const std::int64_t N : {0, 1, 2, 15, 16, 17, 63, 64, 65, 130})
    for (const double share : {0.0, 0.05, 0.5, 1.0}) {
      const std::int64_t O = drawn("rows of weights", 1, 70), I = drawn("columns of x", 1, 50);
      const std::vector<float> dense = some_numbers(O * I, "weights", share),
                               x = some_numbers(N * I, "x"), bias = some_numbers(O, "bias");
      const SparseMatrix weight = sparse_of(dense, O, I);
      for (const bool with_bias : {false, true}) {
        std::vector<float> y(index(N * O), NAN);
        sparse_linear(y, x, weight,
                      with_bias ? std::span<const float>(bias)  //
                                : std::span<const float>());
        double worst = 0;
        for (std::int64_t n = 0; n < N; ++n)
          for (std::int64_t o = 0; o < O; ++o) {
            double sum = with_bias ? static_cast<double>(bias[index(o)]) : 0;
            for (std::int64_t i = 0; i < I; ++i)
              sum += static_cast<double>(x[index(n * I + i)]) *
                     static_cast<double>(dense[index(o * I + i)]);
            const double error = std::abs(sum - static_cast<double>(y[index(n * O + o)]));
            worst = std::isnan(error) ? INFINITY : std::max(worst, error);
          }
        EXPECT_LT(worst, kOfRoundedSums) << N << " rows of x, " << share << " of the weights stay";
      }
    }
}

// Large enough for several threads.
TEST(CsrGiven, ThreadsDoNotChangeIt) {
  const std::int64_t O = 130, I = 257;
  const SparseMatrix weight = sparse_of(some_numbers(O * I, "weights", 0.3), O, I);
  const int threads = omp_get_max_threads();
  for (const std::int64_t N : {1, 5, 70}) {
    const std::vector<float> x = some_numbers(N * I, "x");
    std::vector<float> one(index(N * O)), several(index(N * O));
    omp_set_num_threads(1);
    sparse_linear(one, x, weight);
    omp_set_num_threads(3);
    sparse_linear(several, x, weight);
    omp_set_num_threads(threads);
    EXPECT_EQ(one, several) << N << " rows of x";
  }
}

TEST(CsrGiven, RefusesSizesThatDoNotFit) {
  EXPECT_TRUE(
      error_says([] { sparse_of(std::vector<float>(5), 2, 3); },
                 {"a sparse matrix of 2 rows and 3 columns: found 5 elements, expected 6"}));
  const SparseMatrix m = sparse_of(std::vector<float>(6), 2, 3);
  std::vector<float> y(4);
  EXPECT_TRUE(error_says([&] { sparse_linear(y, std::vector<float>(5), m); },
                         {"a sparse product with 2 rows and 3 columns: found y of 4, x of 5 and "
                          "bias of 0 elements, expected as many rows of y and x"}));
  EXPECT_TRUE(error_says([&] { sparse_linear(y, std::vector<float>(6), m, std::vector<float>(3)); },
                         {"bias of 3"}));
  EXPECT_TRUE(error_says([] { sparse_of({}, 1 << 16, 1 << 16); },
                         {"a sparse matrix of 4294967296 elements: at most 2147483647 expected, "
                          "which an I32 counts"}));
}

}  // namespace
}  // namespace aisc
