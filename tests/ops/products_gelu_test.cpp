// Products with GELU or its gradient behind them: the same numbers as the operations one by one,
// whichever of them the device does in one pass.
#include <algorithm>
#include <vector>

#include "tests/ops/per_dtype.h"

namespace aisc {
namespace {

using ops::Transpose;

struct GeluSizes {
  Index Z, M, N, K;
};

// Rows that are multiples of 8, as one pass on a GPU needs them, and not; batches; one row or
// column; a sum of nothing.
constexpr GeluSizes kGeluSizes[] = {{1, 33, 40, 20}, {1, 17, 35, 9},  {3, 6, 16, 11}, {2, 5, 7, 3},
                                    {1, 1, 64, 70},  {1, 50, 1, 8},   {1, 1, 1, 1},   {1, 3, 8, 0},
                                    {1, 2, 5, 0},    {1, 130, 72, 65}};
constexpr Transpose kFactorsAre[] = {Transpose::None, Transpose::First, Transpose::Second};

class ProductsWithGelu : public PerDType {
 protected:
  struct Factors {
    Tensor a, b, bias;
  };
  // With terms of such a size that sums reach both sides of the bend of GELU.
  Factors factors(const GeluSizes& z, Transpose t) {
    const bool first = t == Transpose::First, second = t == Transpose::Second;
    return {random({z.Z, first ? z.K : z.M, first ? z.M : z.K}, "a", 0.5),
            random({z.Z, second ? z.N : z.K, second ? z.K : z.N}, "b", 0.5), random({z.N}, "bias")};
  }
  // alpha op(a) op(b) [+ bias], without rounding.
  static Array product(const Factors& f, Transpose t, double alpha, bool with_bias) {
    const Array z = reference::scale(reference::matmul(to_array(f.a), to_array(f.b), t), alpha);
    return with_bias ? plus_bias(z, f.bias) : z;
  }
  // The size of the terms, where all of a result cancels.
  Tolerance tolerance(double roundings) const {
    return {tolerance_of(dtype_, roundings).relative, 1};
  }
};
INSTANTIATE_TEST_SUITE_P(Ops, ProductsWithGelu, kFloatingTypes, dtype_name);

TEST_P(ProductsWithGelu, KeepWhatIsBeforeIt) {
  for (const Transpose t : kFactorsAre)
    for (const GeluSizes& z : kGeluSizes)
      for (const bool with_bias : {false, true})
        for (const double alpha : {1.0, -0.5}) {
          const Factors f = factors(z, t);
          const Tensor out = unwritten({z.Z, z.M, z.N}), before = unwritten({z.Z, z.M, z.N});
          ops::MatmulOptions options{.transpose = t, .alpha = alpha, .before_gelu = before};
          if (with_bias) options.bias = f.bias;
          ops::matmul(out, f.a, f.b, options);
          const Array expected = product(f, t, alpha, with_bias);
          // A sum, a bias and GELU may each be rounded, where they are done one by one; a sum that
          // its bias makes smaller was off by more than that before.
          EXPECT_TRUE(all_close(before, expected.values, tolerance(3)))
              << z.Z << " x " << z.M << " x " << z.N << " x " << z.K;
          EXPECT_TRUE(all_close(out, reference::gelu(expected).values, tolerance(3)))
              << z.Z << " x " << z.M << " x " << z.N << " x " << z.K;
        }
}

TEST_P(ProductsWithGelu, AreItsGradient) {
  for (const Transpose t : kFactorsAre)
    for (const GeluSizes& z : kGeluSizes)
      for (const bool with_bias : {false, true}) {
        const Factors f = factors(z, t);
        const Tensor out = unwritten({z.Z, z.M, z.N}), x = random({z.Z, z.M, z.N}, "x");
        ops::MatmulOptions options{.transpose = t, .gelu_of = x};
        if (with_bias) options.bias = f.bias;
        ops::matmul(out, f.a, f.b, options);
        const Array expected = reference::gelu_backward(product(f, t, 1, with_bias), to_array(x));
        EXPECT_TRUE(all_close(out, expected.values, tolerance(3)))
            << z.Z << " x " << z.M << " x " << z.N << " x " << z.K;
      }
}

// Outputs and what belongs to them may begin anywhere.
TEST_P(ProductsWithGelu, WorkOnSlices) {
  const GeluSizes z{1, 9, 16, 12};
  const Factors f = factors(z, Transpose::Second);
  const View a = f.a.view().reshaped({z.M, z.K}), b = f.b.view().reshaped({z.N, z.K});
  const Array expected = product(f, Transpose::Second, 1, true);
  for (const Index at : {8, 4, 1}) {
    const Between out({z.M, z.N}, dtype_, device_, at), before({z.M, z.N}, dtype_, device_, at);
    const Between bias(f.bias, at);
    ops::matmul(out, a, b, {.transpose = Transpose::Second, .bias = bias, .before_gelu = before});
    EXPECT_TRUE(all_close(before, expected.values, tolerance(2))) << at;
    EXPECT_TRUE(all_close(out, reference::gelu(expected).values, tolerance(3))) << at;
    ops::matmul(out, a, b, {.transpose = Transpose::Second, .gelu_of = before});
    const Array gradient =
        reference::gelu_backward(product(f, Transpose::Second, 1, false), to_array(before));
    EXPECT_TRUE(all_close(out, gradient.values, tolerance(3))) << at;
  }
}

// A bias of a short type, added to a sum that is kept in F32.
class ProductsWithBias : public PerDType {};
INSTANTIATE_TEST_SUITE_P(Ops, ProductsWithBias, kShortTypes, dtype_name);

TEST_P(ProductsWithBias, InF32AreNotRounded) {
  for (const Index K : {Index{60}, Index{0}}) {
    const Tensor a = random({1, 20, K}, "a"), b = random({1, 30, K}, "b");
    const Tensor bias = random({30}, "bias", 3), out(Shape{1, 20, 30}, DType::F32, device_);
    ops::matmul(out, a, b, {.transpose = Transpose::Second, .bias = bias});
    const Array product = reference::matmul(to_array(a), to_array(b), Transpose::Second);
    EXPECT_TRUE(all_close(out, plus_bias(product, bias).values, kF32Tolerance));
  }
}

}  // namespace
}  // namespace aisc
