// Matrix products in their three transposed forms: against the reference, and where they can go
// wrong: leftovers of blocks, bias, accumulation, batches, threads that multiply at the same time.
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "tests/ops/per_dtype.h"

namespace aisc {
namespace {

using ops::Into;
using ops::Transpose;

constexpr Transpose kTransposes[] = {Transpose::None, Transpose::First, Transpose::Second};

struct ProductSizes {
  Index M, N, K, Z = 1;
};

class Products : public PerDType {
 protected:
  // op(a) is (Z, M, K) and op(b) (Z, K, N).
  Tensor left(const ProductSizes& z, Transpose t, double scale = 1.0) {
    const bool turned = t == Transpose::First;
    return random({z.Z, turned ? z.K : z.M, turned ? z.M : z.K}, "left", scale);
  }
  Tensor right(const ProductSizes& z, Transpose t) {
    const bool turned = t == Transpose::Second;
    return random({z.Z, turned ? z.N : z.K, turned ? z.K : z.N}, "right");
  }
  static ConstView matrix(const Tensor& x) {
    return x.view().reshaped({x.shape()[1], x.shape()[2]});
  }

  void expect_product(const ProductSizes& z, Transpose t, bool as_matrices = true) {
    const Tensor a = left(z, t), b = right(z, t);
    const Tensor out = unwritten({z.Z, z.M, z.N});
    if (as_matrices && z.Z == 1)
      ops::matmul(out.view().reshaped({z.M, z.N}), matrix(a), matrix(b), {.transpose = t});
    else
      ops::matmul(out, a, b, {.transpose = t});
    EXPECT_TRUE(all_close(out, reference::matmul(to_array(a), to_array(b), t).values, rounded_))
        << z.Z << " x " << z.M << " x " << z.N << " x " << z.K << ", transpose "
        << static_cast<int>(t);
  }
};
INSTANTIATE_TEST_SUITE_P(Ops, Products, kFloatingTypes, dtype_name);

TEST_P(Products, OfSmallIntegersAreExact) {
  const Tensor a = tensor({1, 2, 3, 4}, {2, 2}), b = tensor({5, 6, 7, 8}, {2, 2});
  const Tensor out = unwritten({2, 2});
  const auto expect = [&](Transpose t, const std::vector<double>& values) {
    ops::matmul(out, a, b, {.transpose = t});
    EXPECT_EQ(to_doubles(out), values);
  };
  expect(Transpose::None, {1 * 5 + 2 * 7, 1 * 6 + 2 * 8, 3 * 5 + 4 * 7, 3 * 6 + 4 * 8});
  expect(Transpose::First, {1 * 5 + 3 * 7, 1 * 6 + 3 * 8, 2 * 5 + 4 * 7, 2 * 6 + 4 * 8});
  expect(Transpose::Second, {1 * 5 + 2 * 6, 1 * 7 + 2 * 8, 3 * 5 + 4 * 6, 3 * 7 + 4 * 8});
}

TEST_P(Products, MatchReferenceAtSizesThatFillNoBlock) {
  for (const Transpose t : kTransposes)
    for (const ProductSizes& z :
         {ProductSizes{1, 1, 1}, ProductSizes{2, 3, 4}, ProductSizes{1, 17, 64},
          ProductSizes{7, 16, 17}, ProductSizes{33, 129, 65}, ProductSizes{65, 63, 257},
          ProductSizes{1, 1000, 3}, ProductSizes{130, 1, 70}, ProductSizes{5, 7, 1}})
      expect_product(z, t);
}

TEST_P(Products, MatchReferenceOverSeveralBlocks) {
  expect_product({256, 768, 768}, Transpose::Second);
  expect_product({200, 120, 513}, Transpose::None);
  expect_product({130, 190, 520}, Transpose::First);
}

TEST_P(Products, OfBatchesAreProductsOfTheirMembers) {
  for (const Transpose t : kTransposes)
    for (const ProductSizes& z :
         {ProductSizes{3, 5, 7, 4}, ProductSizes{33, 17, 65, 3}, ProductSizes{16, 64, 64, 2}})
      expect_product(z, t);
  expect_product({9, 10, 11, 1}, Transpose::None, false);  // a batch of one
}

TEST_P(Products, AreScaledByAlpha) {
  const ProductSizes z{33, 20, 65};
  const Tensor a = left(z, Transpose::Second), b = right(z, Transpose::Second);
  const Tensor out = unwritten({z.M, z.N});
  ops::matmul(out, matrix(a), matrix(b), {.transpose = Transpose::Second, .alpha = -0.37});
  const Array product = reference::matmul(to_array(a), to_array(b), Transpose::Second);
  EXPECT_TRUE(all_close(out, reference::scale(product, -0.37).values, rounded_));
}

TEST_P(Products, AddBiasAfterAlpha) {
  for (const Transpose t : kTransposes)
    for (const double alpha : {1.0, 2.5}) {
      const ProductSizes z{50, 300, 40};  // several tiles, each with its part of the bias
      const Tensor a = left(z, t), b = right(z, t), bias = random({z.N}, "bias", 10);
      const Tensor out = unwritten({z.M, z.N});
      ops::matmul(out, matrix(a), matrix(b), {.transpose = t, .alpha = alpha, .bias = bias});
      const Array product = reference::matmul(to_array(a), to_array(b), t);
      const Array expected = plus_bias(reference::scale(product, alpha), bias);
      EXPECT_TRUE(all_close(out, expected.values, rounded_));
    }
}

TEST_P(Products, AddBiasToEveryMemberOfABatch) {
  const ProductSizes z{4, 6, 5, 3};
  const Tensor a = left(z, Transpose::None), b = right(z, Transpose::None);
  const Tensor bias = random({z.N}, "bias"), out = unwritten({z.Z, z.M, z.N});
  ops::matmul(out, a, b, {.bias = bias});
  const Array product = reference::matmul(to_array(a), to_array(b), Transpose::None);
  EXPECT_TRUE(all_close(out, plus_bias(product, bias).values, rounded_));
}

TEST_P(Products, AccumulateOntoWhatIsThere) {
  for (const Transpose t : kTransposes)
    for (const double alpha : {1.0, 0.5})
      for (const Index batch : {1, 2}) {
        const ProductSizes z{17, 33, 70, batch};
        const Tensor a = left(z, t), b = right(z, t), out = random({z.Z, z.M, z.N}, "out", 20);
        const Array before = to_array(out);
        ops::matmul(out, a, b, {.transpose = t, .alpha = alpha, .into = Into::Accumulate});
        const Array product = reference::matmul(to_array(a), to_array(b), t);
        const Array sum = reference::add(before, reference::scale(product, alpha));
        EXPECT_TRUE(all_close(out, sum.values, rounded_));
      }
}

// A gradient accumulated in F32 loses nothing of the products of short types.
class ProductsInF32 : public Products {};
INSTANTIATE_TEST_SUITE_P(Ops, ProductsInF32, kShortTypes, dtype_name);

TEST_P(ProductsInF32, OfShortTypesAreNotRounded) {
  for (const Transpose t : kTransposes) {
    const ProductSizes z{40, 50, 300};
    const Tensor a = left(z, t), b = right(z, t);
    const Tensor out(Shape{z.M, z.N}, DType::F32, device_);
    const Array product = reference::matmul(to_array(a), to_array(b), t);
    ops::matmul(out, matrix(a), matrix(b), {.transpose = t});
    EXPECT_TRUE(all_close(out, product.values, kF32Tolerance));
    ops::matmul(out, matrix(a), matrix(b), {.transpose = t, .into = Into::Accumulate});
    EXPECT_TRUE(all_close(out, reference::scale(product, 2).values, kF32Tolerance));
  }
}

// Loss scaling looks for infinities, so that they must come where a result is beyond F16, and only
// there: the sum itself is F32's.
class ProductsInF16 : public Products {
 protected:
  // out (M, 2), every element x[0] y[0] + x[1] y[1] + x[2] y[2], is `expected`.
  void expect_sum(const std::vector<double>& x, const std::vector<double>& y, double alpha,
                  double expected) {
    for (const Transpose t : kTransposes)
      for (const Index M : {1, 3}) {
        const bool first = t == Transpose::First, second = t == Transpose::Second;
        const Tensor a = tensor(spread(x, M, first), first ? Shape{3, M} : Shape{M, 3});
        const Tensor b = tensor(spread(y, 2, !second), second ? Shape{2, 3} : Shape{3, 2});
        const Tensor out = unwritten({M, 2});
        ops::matmul(out, a, b, {.transpose = t, .alpha = alpha});
        for (const double value : to_doubles(out))
          EXPECT_EQ(value, expected) << M << " rows, transpose " << static_cast<int>(t);
      }
  }

 private:
  // `copies` rows like x one below the other; or as many columns.
  static std::vector<double> spread(const std::vector<double>& x, Index copies, bool as_columns) {
    std::vector<double> values;
    const Index terms = static_cast<Index>(x.size());
    for (Index i = 0; i < copies * terms; ++i)
      values.push_back(x[static_cast<std::size_t>(as_columns ? i / copies : i % terms)]);
    return values;
  }
};
INSTANTIATE_TEST_SUITE_P(Ops, ProductsInF16, on_devices({DType::F16}), dtype_name);

TEST_P(ProductsInF16, BecomeInfiniteWhereTheSumDoesNotFit) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  expect_sum({255, 239, 0}, {256, 1, 1}, 1, 65504);      // 65519, the last that rounds down
  expect_sum({255, 240, 0}, {256, 1, 1}, 1, kInfinity);  // 65520
  expect_sum({255, 240, 0}, {-256, -1, 1}, 1, -kInfinity);
  expect_sum({300, 300, 1}, {300, -200, 4}, 1, 30000);  // 30004; on the way there 90000
  expect_sum({256, 0, 0}, {256, 1, 1}, 0.5, 32768);     // the factor comes before the rounding
  expect_sum({128, 0, 0}, {128, 1, 1}, 4, kInfinity);
}

TEST_P(ProductsInF16, AccumulatedInF32AreFinite) {
  const Tensor a = tensor({256, 256}, {2, 1}), b = tensor({256, -256}, {1, 2});
  const Tensor out = from_doubles({1, 2, 3, 4}, {2, 2}, DType::F32, device_);
  ops::matmul(out, a, b, {.into = Into::Accumulate});
  EXPECT_EQ(to_doubles(out), (std::vector<double>{65537, -65534, 65539, -65532}));
}

TEST_P(Products, OverNothingAreZero) {
  const Tensor a = unwritten({3, 0}), b = unwritten({0, 2}), out = unwritten({3, 2});
  ops::matmul(out, a, b);
  EXPECT_EQ(to_doubles(out), std::vector<double>(6, 0.0));
  const Tensor bias = tensor({1, 2}, {2});
  ops::matmul(out, a, b, {.bias = bias});
  EXPECT_EQ(to_doubles(out), (std::vector<double>{1, 2, 1, 2, 1, 2}));
  ops::matmul(out, a, b, {.into = Into::Accumulate});
  EXPECT_EQ(to_doubles(out), (std::vector<double>{1, 2, 1, 2, 1, 2}));
}

TEST_P(Products, OfNoRowsOrColumnsAreEmpty) {
  EXPECT_NO_THROW(ops::matmul(unwritten({0, 2}), unwritten({0, 3}), random({3, 2}, "b")));
  EXPECT_NO_THROW(ops::matmul(unwritten({2, 0}), random({2, 3}, "a"), unwritten({3, 0})));
}

// Views may begin anywhere, and what lies around the output is not touched.
TEST_P(Products, WorkOnSlices) {
  const Tensor a = random({9, 13}, "a"), b = random({14, 11}, "b"), out = unwritten({8, 11});
  ops::fill(out, 7);
  ops::matmul(out.rows(3, 6), a.rows(5, 8), b.rows(1, 14));
  const Array product =
      reference::matmul(to_array(a.rows(5, 8).reshaped({1, 3, 13})),
                        to_array(b.rows(1, 14).reshaped({1, 13, 11})), Transpose::None);
  EXPECT_TRUE(all_close(out.rows(3, 6), product.values, rounded_));
  EXPECT_EQ(to_doubles(out.rows(0, 3)), std::vector<double>(33, 7.0));
  EXPECT_EQ(to_doubles(out.rows(6, 8)), std::vector<double>(22, 7.0));
}

TEST_P(Products, KeepNaN) {
  const Tensor a = random({4, 5}, "a"), b = random({5, 6}, "b"), out = unwritten({4, 6});
  write_doubles(a.view().flat(7, 1), {NAN});
  ops::matmul(out, a, b);
  EXPECT_TRUE(has_nan(out.rows(1, 2)));
  EXPECT_FALSE(has_nan(out.rows(0, 1)));
}

TEST_P(Products, AreTheSameInEveryRun) {
  const Tensor a = random({70, 300}, "a"), b = random({90, 300}, "b");
  const Tensor once = unwritten({70, 90}), again = unwritten({70, 90});
  ops::matmul(once, a, b, {.transpose = Transpose::Second});
  ops::matmul(again, a, b, {.transpose = Transpose::Second});
  EXPECT_TRUE(same_bits(once, again));
}

class ProductsOnThreads : public Products {};
INSTANTIATE_TEST_SUITE_P(Ops, ProductsOnThreads, kTypesOnCpu, dtype_name);

TEST_P(ProductsOnThreads, MatchReferenceWithAnyNumberOfThreads) {
  with_threads({1, 2, 3}, [&](int /*threads*/) {
    expect_product({65, 70, 129}, Transpose::Second);
    expect_product({3, 200, 50, 3}, Transpose::First);
  });
}

// Ranks may be threads of one process, with a device each: libraries must not share scratch memory
// behind their backs.
TEST_P(Products, OfSeveralRanksAtOnceDoNotDisturbEachOther) {
  constexpr int kRanks = 3, kRounds = 20;
  int wrong[kRanks] = {};
  const auto rank_main = [&](int rank) {
    omp_set_num_threads(1);  // of this thread only
    const std::unique_ptr<Device> owned = make_test_device(GetParam().kind);
    Device& device = *owned;
    const Index N = 48 + 16 * rank;
    const Tensor a = random_tensor({64, 96}, dtype_, device, "a");
    const Tensor b = random_tensor({N, 96}, dtype_, device, "b");
    const Tensor first({64, N}, dtype_, device);
    for (int round = 0; round < kRounds; ++round) {
      const Tensor out({64, N}, dtype_, device);
      ops::matmul(round == 0 ? first.view() : out.view(), a, b, {.transpose = Transpose::Second});
      if (round > 0 && !same_bits(out, first)) ++wrong[rank];
    }
    const Array product =
        reference::matmul(to_array(a.view().reshaped({1, 64, 96})),
                          to_array(b.view().reshaped({1, N, 96})), Transpose::Second);
    if (!all_close(first, product.values, rounded_)) ++wrong[rank];
  };
  {
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < kRanks; ++rank) ranks.emplace_back(rank_main, rank);
  }
  for (const int count : wrong) EXPECT_EQ(count, 0);
}

}  // namespace
}  // namespace aisc
