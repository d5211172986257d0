// Operations on rows: bias, layer norm, softmax, with their backward passes.
#include <cmath>
#include <string>

#include "tests/ops/per_dtype.h"

namespace aisc {
namespace {

using ops::Into;

constexpr double kEpsilon = 1e-5;
constexpr Index kColumns[] = {1, 7, 16, 17, 63, 64, 65, 257, 1000};

// ---- bias ---------------------------------------------------------------------------------------

class Bias : public PerDType {};
INSTANTIATE_TEST_SUITE_P(Ops, Bias, kFloatingTypes, dtype_name);

TEST_P(Bias, IsAddedToEveryRow) {
  const Tensor x = tensor({1, 2, 3, 4}, {2, 2}), bias = tensor({10, 20}, {2});
  const Tensor out = unwritten({2, 2});
  ops::add_bias(out, x, bias);
  EXPECT_EQ(to_doubles(out), (std::vector<double>{11, 22, 13, 24}));
}

TEST_P(Bias, MatchesReference) {
  for (const Index C : kColumns)
    for (const Index N : {0, 1, 5, 33}) {
      const Tensor x = random({N, C}, "x"), bias = random({C}, "bias"), out = unwritten({N, C});
      ops::add_bias(out, x, bias);
      EXPECT_TRUE(
          all_close(out, reference::add_bias(to_array(x), to_array(bias)).values, rounded_));
      ops::add_bias(x, x, bias);
      EXPECT_TRUE(same_bits(x, out)) << "in place";
    }
}

TEST_P(Bias, BackwardSumsColumns) {
  for (const Index C : kColumns)
    for (const Index N : {0, 1, 5, 64, 300}) {
      const Tensor dy = random({N, C}, "dy"), dbias = unwritten({C});
      const Array sums = reference::add_bias_backward(to_array(dy));
      const double size = std::sqrt(double(N));  // of a sum of N terms of order 1
      const Tolerance rounded{rounded_.relative, size}, wide_rounded{kF32Tolerance.relative, size};
      ops::add_bias_backward(dbias, dy, Into::Overwrite);
      EXPECT_TRUE(all_close(dbias, sums.values, rounded)) << N << " x " << C;
      const Tensor more = random({C}, "before", 10);
      const Array before = to_array(more);
      ops::add_bias_backward(more, dy, Into::Accumulate);
      EXPECT_TRUE(all_close(more, reference::add(before, sums).values, rounded));
      if (!is_short()) continue;
      const Tensor wide({C}, DType::F32, device_);
      ops::add_bias_backward(wide, dy, Into::Overwrite);
      EXPECT_TRUE(all_close(wide, sums.values, wide_rounded));
      ops::add_bias_backward(wide, dy, Into::Accumulate);
      EXPECT_TRUE(all_close(wide, reference::scale(sums, 2).values, wide_rounded));
    }
}

// 256 + 1 is 256 in BF16, 2048 + 1 is 2048 in F16: rounding after each addition would lose every
// one.
TEST_P(Bias, BackwardRoundsOnce) {
  const double large = dtype_ == DType::F16 ? 2048 : 256;
  std::vector<double> values(9, 1.0);
  values[0] = large;
  const Tensor dy = tensor(values, {9, 1}), dbias = unwritten({1});
  ops::add_bias_backward(dbias, dy, Into::Overwrite);
  EXPECT_EQ(to_doubles(dbias), std::vector<double>{large + 8});
}

// ---- layer norm ---------------------------------------------------------------------------------

class LayerNorm : public PerDType {
 protected:
  struct Result {
    Tensor y, mean, rstd;
  };
  Result forward(ConstView x, ConstView weight, ConstView bias) {
    const Index N = x.shape()[0];
    Result r{unwritten(x.shape()), unwritten_sums({N}), unwritten_sums({N})};
    ops::layer_norm(r.y, r.mean, r.rstd, x, weight, bias, kEpsilon);
    return r;
  }
  void expect_reference(Index N, Index C);
};
INSTANTIATE_TEST_SUITE_P(Ops, LayerNorm, kFloatingTypes, dtype_name);

// Mean 3, variance 4: (1, 5) becomes (-1, 1) before weight and bias.
TEST_P(LayerNorm, OfTwoNumbersByHand) {
  const Tensor x = tensor({1, 5}, {1, 2}), weight = tensor({2, 3}, {2}), bias = tensor({7, 0}, {2});
  const Result r = forward(x, weight, bias);
  EXPECT_TRUE(all_close(r.mean, {3}, tolerance_of(sums_)));
  EXPECT_TRUE(all_close(r.rstd, {1 / std::sqrt(4 + kEpsilon)}, tolerance_of(sums_)));
  EXPECT_TRUE(
      all_close(r.y, {7 - 4 / std::sqrt(4 + kEpsilon), 6 / std::sqrt(4 + kEpsilon)}, rounded_));
}

void LayerNorm::expect_reference(Index N, Index C) {
  SCOPED_TRACE(std::to_string(N) + " x " + std::to_string(C));
  const Tensor x = random({N, C}, "x", 3), weight = random({C}, "w"), bias = random({C}, "b");
  const Result r = forward(x, weight, bias);
  const reference::LayerNorm forwards =
      reference::layer_norm(to_array(x), to_array(weight), to_array(bias), kEpsilon);
  EXPECT_TRUE(all_close(r.y, forwards.y.values, rounded_));
  EXPECT_TRUE(all_close(r.mean, forwards.mean.values, tolerance_of(sums_)));
  EXPECT_TRUE(all_close(r.rstd, forwards.rstd.values, tolerance_of(sums_)));

  const Tensor dy = random({N, C}, "dy"), dx = unwritten({N, C});
  const auto backward = [&](View to, View dw, View db, Into into) {
    ops::layer_norm_backward(to, dw, db, dy, x, weight, r.mean, r.rstd, into);
  };
  const reference::LayerNormGradients expected = reference::layer_norm_backward(
      to_array(dy), to_array(x), to_array(weight), to_array(r.mean), to_array(r.rstd));
  // With one column the gradient is 0, a difference of equal terms of size rstd.
  const double rstd = C == 1 ? 1 / std::sqrt(kEpsilon) : 0;
  // Sums over N rows of terms of order 1.
  const double size = std::sqrt(double(N));
  const Tolerance rounded{rounded_.relative, size}, wide_rounded{kF32Tolerance.relative, size};
  const Tensor dweight = unwritten({C}), dbias = unwritten({C});
  backward(dx, dweight, dbias, Into::Overwrite);
  EXPECT_TRUE(all_close(dx, expected.dx.values, {rounded_.relative, rstd}));
  EXPECT_TRUE(all_close(dweight, expected.dweight.values, rounded));
  EXPECT_TRUE(all_close(dbias, expected.dbias.values, rounded));

  const Tensor more_w = random({C}, "before", 10), more_b = random({C}, "before b", 10);
  const Array before_w = to_array(more_w), before_b = to_array(more_b);
  backward(dx, more_w, more_b, Into::Accumulate);
  EXPECT_TRUE(all_close(more_w, reference::add(before_w, expected.dweight).values, rounded));
  EXPECT_TRUE(all_close(more_b, reference::add(before_b, expected.dbias).values, rounded));

  if (is_short()) {
    const Tensor wide_w({C}, DType::F32, device_), wide_b({C}, DType::F32, device_);
    backward(dx, wide_w, wide_b, Into::Overwrite);
    EXPECT_TRUE(all_close(wide_w, expected.dweight.values, wide_rounded));
    backward(dx, wide_w, wide_b, Into::Accumulate);
    EXPECT_TRUE(all_close(wide_b, reference::scale(expected.dbias, 2).values, wide_rounded));
  }
  const Tensor once = dx.clone();
  backward(dy, dweight, dbias, Into::Overwrite);
  EXPECT_TRUE(same_bits(dy, once)) << "in place of dy";
}

TEST_P(LayerNorm, MatchesReference) {
  for (const Index C : kColumns)
    for (const Index N : {0, 1, 5, 33, 200}) expect_reference(N, C);
}

// Lengths just below and above those that a warp or a block keeps in registers.
TEST_P(LayerNorm, OfRowsOfEveryLengthMatchesReference) {
  for (const Index C : {256, 512, 768, 1024, 1032, 2048, 4096, 4104, 8192, 16384, 16392, 20001})
    expect_reference(C < 2000 ? 19 : 3, C);
}

// E[x^2] - E[x]^2 would be lost in rounding here: the mean is 1000 deviations away. (In short types
// x itself would be rounded to whole numbers.)
class LongLayerNorm : public LayerNorm {};
INSTANTIATE_TEST_SUITE_P(Ops, LongLayerNorm, kLongTypes, dtype_name);

TEST_P(LongLayerNorm, SurvivesALargeMean) {
  const Index C = 300;
  std::vector<double> values = to_doubles(random({C}, "x"));
  for (double& value : values) value += 1000;
  const Tensor x = tensor(values, {1, C});
  const Tensor weight = tensor(std::vector<double>(C, 1.0), {C});
  const Tensor bias = tensor(std::vector<double>(C, 0.0), {C});
  const reference::LayerNorm expected =
      reference::layer_norm(to_array(x), to_array(weight), to_array(bias), kEpsilon);
  // The mean is known to 1000 roundoffs: that much is lost, but not its square.
  const Tolerance tolerance{1000 * (dtype_ == DType::F64 ? 0x1p-51 : 0x1p-22)};
  EXPECT_TRUE(all_close(forward(x, weight, bias).y, expected.y.values, tolerance));
}

TEST_P(LayerNorm, NaNSpoilsItsRowOnly) {
  const Tensor x = random({3, 40}, "x"), weight = random({40}, "w");
  write_doubles(x.view().flat(57, 1), {NAN});
  const Result r = forward(x, weight, weight);
  EXPECT_FALSE(has_nan(r.y.rows(0, 1)));
  EXPECT_TRUE(has_nan(r.y.rows(1, 2)));
  EXPECT_FALSE(has_nan(r.y.rows(2, 3)));
}

// ---- softmax ------------------------------------------------------------------------------------

class Softmax : public PerDType {
 protected:
  // Returns y.
  Tensor expect_reference(Index N, Index C) {
    const Tensor x = random({N, C}, "x", 3);
    Tensor y = unwritten({N, C});
    ops::softmax(y, x);
    EXPECT_TRUE(all_close(y, reference::softmax(to_array(x)).values, rounded_)) << N << " x " << C;
    ops::softmax(x, x);
    EXPECT_TRUE(same_bits(x, y)) << "in place";
    return y;
  }
  void expect_reference_and_backward(Index N, Index C) {
    SCOPED_TRACE(C);
    const Tensor y = expect_reference(N, C);
    const Tensor dy = random({N, C}, "dy"), dx = unwritten({N, C});
    ops::softmax_backward(dx, dy, y);
    const Array expected = reference::softmax_backward(to_array(dy), to_array(y));
    // With one column dy - dy y is 0 where y is 1: exactly, in every type.
    EXPECT_TRUE(all_close(dx, expected.values, rounded_));
    ops::softmax_backward(dy, dy, y);
    EXPECT_TRUE(same_bits(dy, dx)) << "in place of dy";
  }
};
INSTANTIATE_TEST_SUITE_P(Ops, Softmax, kFloatingTypes, dtype_name);

TEST_P(Softmax, OfEqualNumbersIsUniform) {
  const Tensor x = tensor({5, 5, 5, 5, -2, -2, -2, -2}, {2, 4}), y = unwritten({2, 4});
  ops::softmax(y, x);
  EXPECT_EQ(to_doubles(y), std::vector<double>(8, 0.25));
}

TEST_P(Softmax, MatchesReference) {
  for (const Index C : kColumns)
    for (const Index N : {0, 1, 33}) expect_reference(N, C);
}

TEST_P(Softmax, BackwardMatchesReference) {
  for (const Index C : kColumns) expect_reference_and_backward(5, C);
  for (const Index C : {1024, 2049, 4096, 8200, 50304}) expect_reference_and_backward(2, C);
}

TEST_P(Softmax, GoesOverTheLastDimension) {
  const Tensor x = random({2, 3, 4, 5}, "x"), y = unwritten({2, 3, 4, 5});
  ops::softmax(y, x);
  EXPECT_TRUE(
      all_close(y, reference::softmax(to_array(x.view().reshaped({24, 5}))).values, rounded_));
  const Tensor row = random({7}, "row"), out = unwritten({7});
  ops::softmax(out, row);
  EXPECT_TRUE(
      all_close(out, reference::softmax(to_array(row.view().reshaped({1, 7}))).values, rounded_));
}

TEST_P(Softmax, OfHugeNumbersIsFinite) {
  const Tensor x = tensor({6e4, 6e4, -6e4, 0}, {1, 4}), y = unwritten({1, 4});
  ops::softmax(y, x);
  EXPECT_EQ(to_doubles(y), (std::vector<double>{0.5, 0.5, 0, 0}));
}

TEST_P(Softmax, GivesNothingToMinusInfinity) {
  const Tensor x = tensor({-INFINITY, 1, -INFINITY, 1}, {1, 4}), y = unwritten({1, 4});
  ops::softmax(y, x);
  EXPECT_EQ(to_doubles(y), (std::vector<double>{0, 0.5, 0, 0.5}));
}

TEST_P(Softmax, NaNSpoilsItsRowOnly) {
  for (const Index at : {0, 17, 39}) {
    const Tensor x = random({3, 40}, "x"), y = unwritten({3, 40});
    write_doubles(x.view().flat(40 + at, 1), {NAN});
    ops::softmax(y, x);
    EXPECT_FALSE(has_nan(y.rows(0, 1)));
    EXPECT_TRUE(has_nan(y.rows(1, 2))) << at;
    EXPECT_FALSE(has_nan(y.rows(2, 3)));
  }
}

}  // namespace
}  // namespace aisc
