// What routers are made of: the columns of a row's largest numbers, what is taken from columns and
// given back, weights that add up to 1, and the gradient of factors of rows.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "tests/ops/per_dtype.h"

namespace aisc {
namespace {

using ops::Into;
using reference::Ids;

// ---- the largest of a row -----------------------------------------------------------------------

class TopK : public PerDType {
 protected:
  std::vector<double> top_k(ConstView x, Index k) {
    const Tensor ids({x.shape()[0], k}, DType::I32, device_);
    ops::top_k(ids, x);
    return to_doubles(ids);
  }
};
INSTANTIATE_TEST_SUITE_P(Ops, TopK, kFloatingTypes, dtype_name);

// A stable sort of each row's columns, from the largest number to the smallest.
std::vector<double> sorted_columns(const Array& x, Index k) {
  std::vector<double> ids;
  for (Index n = 0; n < x.extent(0); ++n) {
    std::vector<Index> columns(static_cast<std::size_t>(x.extent(1)));
    std::iota(columns.begin(), columns.end(), 0);
    std::stable_sort(columns.begin(), columns.end(),
                     [&](Index a, Index b) { return x(n, a) > x(n, b); });
    ids.insert(ids.end(), columns.begin(), columns.begin() + k);
  }
  return ids;
}

TEST_P(TopK, IsTheLargestFirst) {
  const Tensor x = tensor({1, 4, 3, 2, -1, -3, -2, -4}, {2, 4});
  EXPECT_EQ(top_k(x, 1), (std::vector<double>{1, 0}));
  EXPECT_EQ(top_k(x, 3), (std::vector<double>{1, 2, 3, 0, 2, 1}));
  EXPECT_EQ(top_k(x, 4), (std::vector<double>{1, 2, 3, 0, 0, 2, 1, 3}));
}

TEST_P(TopK, OfEqualNumbersIsTheLowerColumn) {
  const Tensor x = tensor({2, 7, 2, 7, 7, 0, -0.0, 0, -0.0, 0}, {2, 5});
  EXPECT_EQ(top_k(x, 2), (std::vector<double>{1, 3, 0, 1}));
  EXPECT_EQ(top_k(x, 5), (std::vector<double>{1, 3, 4, 0, 2, 0, 1, 2, 3, 4}));
}

// After minus infinity, too; a row of nothing else is in its own order.
TEST_P(TopK, PutsNaNLast) {
  const Tensor x = tensor({NAN, -INFINITY, 3, NAN, INFINITY, NAN, NAN, NAN, NAN, NAN}, {2, 5});
  EXPECT_EQ(top_k(x, 3), (std::vector<double>{4, 2, 1, 0, 1, 2}));
  EXPECT_EQ(top_k(x, 5), (std::vector<double>{4, 2, 1, 0, 3, 0, 1, 2, 3, 4}));
}

TEST_P(TopK, MatchesASortOfTheRow) {
  for (const Index E : {1, 2, 8, 33, 257})
    for (const Index N : {0, 1, 70})
      for (const Index k : {Index{1}, std::min<Index>(2, E), (E + 1) / 2, E}) {
        const Tensor x = random({N, E}, "x");
        EXPECT_EQ(top_k(x, k), sorted_columns(to_array(x), k)) << k << " of " << E;
      }
}

// As experts choose tokens: long rows, many of them chosen, and many equal numbers (whole ones).
TEST_P(TopK, OfLongRowsWithEqualNumbersMatchesASort) {
  std::vector<double> values;
  for (const std::int32_t id : random_ids(6 * 2050, 100, "x")) values.push_back(id);
  const Tensor x = tensor(values, {6, 2050});
  for (const Index k : {1, 300, 2050}) EXPECT_EQ(top_k(x, k), sorted_columns(to_array(x), k)) << k;
}

// Rising rows are the heap's worst case: each number comes before all that were seen.
TEST_P(TopK, OfRisingAndFallingRows) {
  const Index E = 200, k = 70;
  std::vector<double> values = counted(200);
  values.insert(values.end(), values.rbegin(), values.rend());
  EXPECT_EQ(top_k(tensor(values, {2, E}), k), sorted_columns(to_array(tensor(values, {2, E})), k));
}

// ---- columns that ids name ----------------------------------------------------------------------

class TakeColumns : public PerDType {
 protected:
  Tensor ids(const Ids& values, const Shape& shape) {
    return ids_tensor(values, device_).reshaped(shape);
  }
};
INSTANTIATE_TEST_SUITE_P(Ops, TakeColumns, kFloatingTypes, dtype_name);

TEST_P(TakeColumns, TakesWhatIdsName) {
  const Tensor x = tensor({1, 2, 3, 4, 5, 6}, {2, 3}), values = unwritten({2, 4});
  ops::take_columns(values, x, ids({2, 0, -1, 2, 1, 1, 1, -1}, {2, 4}));
  EXPECT_EQ(to_doubles(values), (std::vector<double>{3, 1, 0, 3, 5, 5, 5, 0}));
}

TEST_P(TakeColumns, BackwardAddsAtTheColumns) {
  const Tensor chosen = ids({2, 0, -1, 2, 1, 1, 1, -1}, {2, 4}), dx = unwritten({2, 3});
  const Tensor dvalues = tensor({1, 2, 3, 4, 5, 6, 7, 8}, {2, 4});
  ops::take_columns_backward(dx, dvalues, chosen);
  EXPECT_EQ(to_doubles(dx), (std::vector<double>{2, 0, 5, 0, 18, 0}));
  ops::take_columns_backward(dx, dvalues, chosen, Into::Accumulate);
  EXPECT_EQ(to_doubles(dx), (std::vector<double>{4, 0, 10, 0, 36, 0}));
}

// What nobody chose keeps its bits where gradients are added, even a NaN.
TEST_P(TakeColumns, BackwardLeavesOthersAsTheyAre) {
  const Tensor dx = tensor({NAN, 1, NAN}, {1, 3});
  ops::take_columns_backward(dx, tensor({5}, {1, 1}), ids({1}, {1, 1}), Into::Accumulate);
  const std::vector<double> found = to_doubles(dx);
  EXPECT_TRUE(std::isnan(found[0]) && std::isnan(found[2]));
  EXPECT_EQ(found[1], 6);
}

TEST_P(TakeColumns, MatchLoops) {
  for (const Index E : {1, 8, 300})
    for (const Index k : {0, 1, 2, 9})
      for (const Index N : {0, 1, 5, 333}) {
        SCOPED_TRACE(std::to_string(k) + " of " + std::to_string(E) + ", rows " +
                     std::to_string(N));
        Ids numbers = random_ids(N * k, E + 1, "ids");
        for (std::int32_t& number : numbers) --number;  // from -1 on
        const Tensor chosen = ids(numbers, {N, k});
        const Tensor x = random({N, E}, "x"), values = unwritten({N, k});
        const Tensor dvalues = random({N, k}, "dvalues"), dx = unwritten({N, E});
        const Array in = to_array(x), dout = to_array(dvalues);
        Array taken({N, k}), given({N, E});
        for (Index n = 0; n < N; ++n)
          for (Index j = 0; j < k; ++j) {
            const Index id = numbers[static_cast<std::size_t>(n * k + j)];
            if (id < 0) continue;
            taken(n, j) = in(n, id);
            given(n, id) += dout(n, j);
          }
        ops::take_columns(values, x, chosen);
        EXPECT_EQ(to_doubles(values), taken.values);  // a copy: exact
        ops::take_columns_backward(dx, dvalues, chosen);
        EXPECT_TRUE(all_close(dx, given.values, rounded_));
        const Tensor more = random({N, E}, "before", 10);
        const Array before = to_array(more);
        ops::take_columns_backward(more, dvalues, chosen, Into::Accumulate);
        EXPECT_TRUE(all_close(more, reference::add(before, given).values, rounded_));
        if (!is_short()) continue;
        const Tensor wide({N, E}, DType::F32, device_);
        ops::take_columns_backward(wide, dvalues, chosen);
        EXPECT_TRUE(all_close(wide, given.values, kF32Tolerance));
      }
}

// 256 + 1 is 256 in BF16, 2048 + 1 is 2048 in F16: rounding after each addition would lose every
// one.
TEST_P(TakeColumns, BackwardOfEqualIdsRoundsOnce) {
  const double large = dtype_ == DType::F16 ? 2048 : 256;
  const Tensor ones = tensor(std::vector<double>(8, 1.0), {1, 8});
  const Tensor dx = tensor({5, large, 7}, {1, 3});
  ops::take_columns_backward(dx, ones, ids(Ids(8, 1), {1, 8}), Into::Accumulate);
  EXPECT_EQ(to_doubles(dx), (std::vector<double>{5, large + 8, 7}));
}

// ---- sums of rows -------------------------------------------------------------------------------

class RowSums : public PerDType {};
INSTANTIATE_TEST_SUITE_P(Ops, RowSums, kFloatingTypes, dtype_name);

constexpr Index kRowLengths[] = {1, 2, 8, 63, 64, 65, 257, 1500};

TEST_P(RowSums, DotsByHand) {
  const Tensor a = tensor({1, 2, 3, 4}, {2, 2}), b = tensor({5, 6, 7, -8}, {2, 2});
  const Tensor dots = unwritten_sums({2});
  ops::row_dots(dots, a, b);
  EXPECT_EQ(to_doubles(dots), (std::vector<double>{17, -11}));
}

TEST_P(RowSums, DotsMatchLoops) {
  for (const Index D : kRowLengths)
    for (const Index N : {0, 1, 33}) {
      const Tensor a = random({N, D}, "a"), b = random({N, D}, "b"), dots = unwritten_sums({N});
      ops::row_dots(dots, a, b);
      const Array x = to_array(a), y = to_array(b);
      Array expected({N});
      for (Index n = 0; n < N; ++n)
        for (Index d = 0; d < D; ++d) expected(n) += x(n, d) * y(n, d);
      const Tolerance terms{tolerance_of(sums_).relative, std::sqrt(double(D))};
      EXPECT_TRUE(all_close(dots, expected.values, terms)) << D;
    }
}

TEST_P(RowSums, OfNormalizedRowsAreOne) {
  const Tensor x = tensor({1, 3, 0, 4, 2, 2, 0, 0}, {2, 4}), y = unwritten({2, 4});
  ops::normalize_rows(y, x);
  EXPECT_EQ(to_doubles(y), (std::vector<double>{0.125, 0.375, 0, 0.5, 0.5, 0.5, 0, 0}));
}

// As of a token that no expert has room for. A sum of 0 need not be of zeros.
TEST_P(RowSums, OfZeroGiveZeros) {
  const Tensor x = tensor({0, 0, 3, -3, 1, 1}, {3, 2}), y = unwritten({3, 2});
  ops::normalize_rows(y, x);
  EXPECT_EQ(to_doubles(y), (std::vector<double>{0, 0, 0, 0, 0.5, 0.5}));
  const Tensor dy = tensor({1, 2, 3, 4, 5, 7}, {3, 2}), dx = unwritten({3, 2});
  ops::normalize_rows_backward(dx, dy, y, x);
  EXPECT_EQ(to_doubles(dx), (std::vector<double>{0, 0, 0, 0, -0.5, 0.5}));
}

TEST_P(RowSums, NormalizedRowsMatchLoops) {
  for (const Index C : kRowLengths)
    for (const Index N : {0, 1, 33}) {
      const Tensor x = unwritten({N, C}), y = unwritten({N, C}), dx = unwritten({N, C});
      ops::sigmoid(x, random({N, C}, "x"));  // positive numbers, as routers have
      const Tensor dy = random({N, C}, "dy");
      ops::normalize_rows(y, x);
      const Array in = to_array(x), shares = to_array(y), gradients = to_array(dy);
      Array expected({N, C}), backward({N, C});
      for (Index n = 0; n < N; ++n) {
        double sum = 0, mean = 0;
        for (Index c = 0; c < C; ++c) sum += in(n, c), mean += gradients(n, c) * shares(n, c);
        for (Index c = 0; c < C; ++c) {
          expected(n, c) = in(n, c) / sum;
          backward(n, c) = (gradients(n, c) - mean) / sum;
        }
      }
      EXPECT_TRUE(all_close(y, expected.values, rounded_)) << C;
      ops::normalize_rows_backward(dx, dy, y, x);
      // dy is of order 1, the sum of order C; with one column both terms are equal.
      EXPECT_TRUE(all_close(dx, backward.values, {rounded_.relative, 2.0 / double(C)})) << C;
      ops::normalize_rows_backward(dy, dy, y, x);
      EXPECT_TRUE(same_bits(dy, dx)) << "in place of dy";
      ops::normalize_rows(x, x);
      EXPECT_TRUE(same_bits(x, y)) << "in place";
    }
}

TEST_P(RowSums, OfANaNSpoilTheirRowOnly) {
  const Tensor x = random({3, 40}, "x"), y = unwritten({3, 40}), dots = unwritten_sums({3});
  write_doubles(x.view().flat(57, 1), {NAN});
  ops::normalize_rows(y, x);
  ops::row_dots(dots, x, x);
  for (const Index row : {0, 2}) {
    EXPECT_FALSE(has_nan(y.rows(row, row + 1)));
    EXPECT_FALSE(has_nan(dots.rows(row, row + 1)));
  }
  EXPECT_TRUE(has_nan(y.rows(1, 2)));
  EXPECT_TRUE(has_nan(dots.rows(1, 2)));
}

}  // namespace
}  // namespace aisc
