// Operations on single elements: values, every leftover of a vector, in-place use, NaN.
#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "tests/ops/per_dtype.h"

namespace aisc {
namespace {

// One form each of an operation that has two.
void tanh_gelu(View y, ConstView x) { ops::gelu(y, x); }
void tanh_gelu_backward(View dx, ConstView dy, ConstView x) { ops::gelu_backward(dx, dy, x); }
void erf_gelu(View y, ConstView x) { ops::gelu(y, x, ops::Gelu::Erf); }
void erf_gelu_backward(View dx, ConstView dy, ConstView x) {
  ops::gelu_backward(dx, dy, x, ops::Gelu::Erf);
}

constexpr Index kCounts[] = {0, 1, 7, 16, 17, 63, 64, 65, 257, 1000, 5000};

class Elementwise : public PerDType {
 protected:
  // Inputs are of order 1, and so are the terms that may cancel, as in gelu's 1 + tanh u.
  const Tolerance order_one_{rounded_.relative, 1.0};

  using Unary = std::function<void(View, ConstView)>;
  using Binary = std::function<void(View, ConstView, ConstView)>;

  // f(y, x) matches `expected` at every count, and gives the same bits in place.
  void expect_unary(const Unary& f, const std::function<Array(const Array&)>& expected,
                    double scale = 2.0) {
    for (const Index n : kCounts) {
      const Tensor x = random({n}, "x", scale), y = unwritten({n});
      f(y, x);
      EXPECT_TRUE(all_close(y, expected(to_array(x)).values, order_one_)) << n;
      f(x, x);
      EXPECT_TRUE(same_bits(x, y)) << n << " in place";
    }
  }
  // The same for f(out, a, b), in place of a; of b too where the contract says so.
  void expect_binary(const Binary& f,
                     const std::function<Array(const Array&, const Array&)>& expected) {
    for (const Index n : kCounts) {
      const Tensor a = random({n}, "a", 2), b = random({n}, "b", 2), out = unwritten({n});
      f(out, a, b);
      EXPECT_TRUE(all_close(out, expected(to_array(a), to_array(b)).values, order_one_)) << n;
      f(a, a, b);
      EXPECT_TRUE(same_bits(a, out)) << n << " in place";
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Ops, Elementwise, kFloatingTypes, dtype_name);

TEST_P(Elementwise, FillWritesEveryElement) {
  for (const Index n : kCounts) {
    const Tensor x = unwritten({n});
    ops::fill(x, -1.5);
    EXPECT_EQ(to_doubles(x), std::vector<double>(size_t(n), -1.5));
  }
}

TEST_P(Elementwise, AddMatchesReference) { expect_binary(ops::add, reference::add); }

TEST_P(Elementwise, AddMayOverwriteItsSecondInput) {
  const Tensor a = tensor({1, 2, 3}, {3}), b = tensor({10, 20, 30}, {3});
  ops::add(b, a, b);
  EXPECT_EQ(to_doubles(b), (std::vector<double>{11, 22, 33}));
  ops::add(a, a, a);
  EXPECT_EQ(to_doubles(a), (std::vector<double>{2, 4, 6}));
}

TEST_P(Elementwise, ScaleMatchesReference) {
  expect_unary([](View y, ConstView x) { ops::scale(y, x, 0.7); },
               [](const Array& x) { return reference::scale(x, 0.7); });
}

TEST_P(Elementwise, ReluMatchesReference) { expect_unary(ops::relu, reference::relu); }

TEST_P(Elementwise, ReluBackwardMatchesReference) {
  expect_binary(ops::relu_backward, reference::relu_backward);
}

TEST_P(Elementwise, ReluPassesNothingAtZero) {
  const Tensor x = tensor({-2, -0.0, 0, 3}, {4}), y = unwritten({4}), dx = unwritten({4});
  ops::relu(y, x);
  EXPECT_EQ(to_doubles(y), (std::vector<double>{0, 0, 0, 3}));
  ops::relu_backward(dx, tensor({1, 1, 1, 5}, {4}), x);
  EXPECT_EQ(to_doubles(dx), (std::vector<double>{0, 0, 0, 5}));
}

TEST_P(Elementwise, GeluMatchesReference) { expect_unary(tanh_gelu, reference::gelu); }

TEST_P(Elementwise, GeluBackwardMatchesReference) {
  expect_binary(tanh_gelu_backward, reference::gelu_backward);
}

TEST_P(Elementwise, ErfGeluMatchesReference) { expect_unary(erf_gelu, reference::erf_gelu); }

TEST_P(Elementwise, ErfGeluBackwardMatchesReference) {
  expect_binary(erf_gelu_backward, reference::erf_gelu_backward);
}

// GPT-2's form at 1: 0.841192 (Gauss's error function would give 0.841345).
TEST_P(Elementwise, GeluIsTheTanhForm) {
  const Tensor x = tensor({0, 1, -1}, {3}), y = unwritten({3});
  ops::gelu(y, x);
  const Tolerance tolerance{std::max(rounded_.relative, 1e-7)};  // of the numbers written here
  EXPECT_TRUE(all_close(y, {0, 0.8411919906, -0.1588080094}, tolerance));
}

// BERT's: of a normal distribution .841345 lies below 1, and its density there is .241971.
TEST_P(Elementwise, ErfGeluIsItsInputTimesTheProbabilityBelowIt) {
  const Tensor x = tensor({0, 1, -1}, {3}), y = unwritten({3}), dx = unwritten({3});
  erf_gelu(y, x);
  erf_gelu_backward(dx, tensor({1, 1, 2}, {3}), x);
  const Tolerance tolerance{std::max(rounded_.relative, 1e-9)};  // of the numbers written here
  EXPECT_TRUE(all_close(y, {0, 0.8413447461, -0.1586552539}, tolerance));
  EXPECT_TRUE(all_close(dx, {0.5, 1.0833154706, -0.1666309411}, tolerance));
}

// Where Phi is small, the difference 1 - |erf| has few digits, or none.
TEST_P(Elementwise, ErfGeluHasItsDigitsFarBelowZero) {
  if (dtype_ == DType::F16) GTEST_SKIP() << "has no such small numbers";
  const Tensor x = tensor({-4, -6, -8, -10, -12}, {5}), y = unwritten({5});
  erf_gelu(y, x);
  const std::vector<double> expected{-1.266849673324799e-4, -5.919525870226207e-9,
                                     -4.976768459417455e-15, -7.619853024160593e-23,
                                     -2.131778534493242e-32};
  // The tail is an exponential of -x^2 / 2, off by as much as that is rounded by.
  const double lost = 144 * (dtype_ == DType::F64 ? 0x1p-53 : 0x1p-24);
  for (Index i = 0; i < 5; ++i)
    EXPECT_TRUE(all_close(y.view().flat(i, 1), {expected[static_cast<std::size_t>(i)]},
                          {rounded_.relative + lost}));
}

TEST_P(Elementwise, GeluIsItsInputOrZeroFarFromZero) {
  const Tensor x = tensor({-6e4, -1000, -50, -20, 20, 50, 1000, 6e4}, {8});
  const Tensor y = unwritten({8}), dx = unwritten({8});
  for (const ops::Gelu form : {ops::Gelu::Tanh, ops::Gelu::Erf}) {
    ops::gelu(y, x, form);
    ops::gelu_backward(dx, tensor(std::vector<double>(8, 1.0), {8}), x, form);
    const std::vector<double> seen = to_doubles(x), values = to_doubles(y), slopes = to_doubles(dx);
    for (std::size_t i = 0; i < seen.size(); ++i) {
      EXPECT_NEAR(values[i], seen[i] < 0 ? 0 : seen[i], 1e-30) << "gelu(" << seen[i] << ")";
      EXPECT_NEAR(slopes[i], seen[i] < 0 ? 0 : 1, 1e-12) << "slope at " << seen[i];
    }
  }
}

// The square of such a number is infinite.
TEST_P(Elementwise, GeluOfTheLargestNumbersIsNoNaN) {
  const double largest = dtype_ == DType::F64 ? 1e300 : dtype_ == DType::F16 ? 65504 : 1e38;
  const Tensor x = tensor({-largest, largest}, {2}), y = unwritten({2}), dx = unwritten({2});
  erf_gelu(y, x);
  erf_gelu_backward(dx, tensor({1, 1}, {2}), x);
  EXPECT_EQ(to_doubles(y), (std::vector<double>{0, to_doubles(x)[1]}));
  EXPECT_EQ(to_doubles(dx), (std::vector<double>{0, 1}));
}

TEST_P(Elementwise, SigmoidMatchesItsFormula) {
  expect_unary(ops::sigmoid, [](const Array& x) {
    Array y = x;
    for (double& value : y.values) value = 1 / (1 + std::exp(-value));
    return y;
  });
  expect_binary(ops::sigmoid_backward, [](const Array& dy, const Array& y) {
    Array dx = dy;
    for (std::size_t i = 0; i < dx.values.size(); ++i)
      dx.values[i] *= y.values[i] * (1 - y.values[i]);
    return dx;
  });
}

TEST_P(Elementwise, SigmoidBackwardMayOverwriteItsSecondInput) {
  const Tensor dy = tensor({4, 8, 16}, {3}), y = tensor({0.5, 0.25, 1}, {3});
  ops::sigmoid_backward(y, dy, y);
  EXPECT_EQ(to_doubles(y), (std::vector<double>{1, 1.5, 0}));
}

TEST_P(Elementwise, SigmoidIsZeroOrOneFarFromZero) {
  const Tensor x = tensor({-INFINITY, -1e4, -1000, -200, 0, 200, 1000, 1e4, INFINITY}, {9});
  const Tensor y = unwritten({9}), dx = unwritten({9});
  ops::sigmoid(y, x);
  const std::vector<double> values = to_doubles(y);
  for (std::size_t i = 0; i < 9; ++i)
    EXPECT_NEAR(values[i], i < 4 ? 0 : i == 4 ? 0.5 : 1, 1e-80) << i;
  ops::sigmoid_backward(dx, tensor(std::vector<double>(9, 1.0), {9}), y);
  const std::vector<double> slopes = to_doubles(dx);
  for (std::size_t i = 0; i < 9; ++i) EXPECT_NEAR(slopes[i], i == 4 ? 0.25 : 0, 1e-80) << i;
}

TEST_P(Elementwise, NaNStaysNaN) {
  const Tensor x = random({100}, "x"), ones = tensor(std::vector<double>(100, 1.0), {100});
  write_doubles(x.view().flat(37, 1), {NAN});
  const Tensor y = unwritten({100});
  const auto expect_nan_only_at_37 = [&](const char* operation) {
    EXPECT_TRUE(has_nan(y.view().flat(37, 1))) << operation;
    EXPECT_FALSE(has_nan(y.view().flat(0, 37))) << operation;
    EXPECT_FALSE(has_nan(y.view().flat(38, 62))) << operation;
  };
  ops::gelu(y, x);
  expect_nan_only_at_37("gelu");
  ops::gelu_backward(y, ones, x);
  expect_nan_only_at_37("gelu_backward");
  ops::gelu_backward(y, x, ones);
  expect_nan_only_at_37("gelu_backward of dy");
  erf_gelu(y, x);
  expect_nan_only_at_37("erf_gelu");
  erf_gelu_backward(y, ones, x);
  expect_nan_only_at_37("erf_gelu_backward");
  ops::sigmoid(y, x);
  expect_nan_only_at_37("sigmoid");
  ops::sigmoid_backward(y, x, ones);
  expect_nan_only_at_37("sigmoid_backward of dy");
  ops::sigmoid_backward(y, ones, x);
  expect_nan_only_at_37("sigmoid_backward of y");
  ops::relu(y, x);
  expect_nan_only_at_37("relu");
  ops::relu_backward(y, x, ones);
  expect_nan_only_at_37("relu_backward of dy");
  ops::add(y, x, ones);
  expect_nan_only_at_37("add");
  ops::scale(y, x, 2);
  expect_nan_only_at_37("scale");
  ops::cast(y, x);
  expect_nan_only_at_37("cast");
}

// To every other type, with one rounding, and back without any where the other type is longer.
TEST_P(Elementwise, CastRoundsOnce) {
  for (const DType to : {DType::F64, DType::F32, DType::BF16, DType::F16})
    for (const Index n : kCounts) {
      const Tensor x = random({n}, "x", 3), y({n}, to, device_);
      ops::cast(y, x);
      EXPECT_TRUE(same_bits(y, from_doubles(to_doubles(x), {n}, to, device_)))
          << name_of(dtype_) << " to " << name_of(to);
    }
}

// What loss scaling looks for: 65504 is the largest number, and what rounds to 65536 is infinite.
// Among other elements, and in the leftovers of vectors.
class ElementwiseInF16 : public PerDType {};
INSTANTIATE_TEST_SUITE_P(Ops, ElementwiseInF16, on_devices({DType::F16}), dtype_name);

TEST_P(ElementwiseInF16, ResultsBeyondTheRangeAreInfinite) {
  struct Rounded {
    double value, expected;
  };
  for (const auto& [value, expected] :
       {Rounded{65519, 65504}, Rounded{65520, INFINITY}, Rounded{-65519, -65504},
        Rounded{-65520, -INFINITY}, Rounded{3e38, INFINITY}, Rounded{INFINITY, INFINITY}})
    for (const Index n : {1, 33, 100}) {
      std::vector<double> values(static_cast<std::size_t>(n), 1.0), expected_values = values;
      values.back() = value;
      expected_values.back() = expected;
      const Tensor y = unwritten({n});
      for (const DType from : {DType::F64, DType::F32}) {
        ops::cast(y, from_doubles(values, {n}, from, device_));
        EXPECT_EQ(to_doubles(y), expected_values) << value << " in " << name_of(from);
      }
    }
  const Tensor x = tensor({65504, -65504, 32768, 32752}, {4}), y = unwritten({4});
  ops::scale(y, x, 2);
  EXPECT_EQ(to_doubles(y), (std::vector<double>{INFINITY, -INFINITY, INFINITY, 65504}));
  ops::add(y, x, tensor({8, -16, 1, 0}, {4}));
  EXPECT_EQ(to_doubles(y), (std::vector<double>{65504, -INFINITY, 32768, 32752}));
}

}  // namespace
}  // namespace aisc
