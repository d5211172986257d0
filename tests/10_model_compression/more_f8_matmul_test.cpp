// Products of codes: against sums of decoded numbers, on the host and on a GPU.
#include "10_model_compression/more/f8_matmul.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/devices.h"
#include "tests/support/message_of.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

class F8Matmul : public PerDevice {
 protected:
  F8Tensor in_f8(const char* name, std::int64_t rows, std::int64_t columns,
                 const NumberFormat& format, double scale = 1) {
    return to_f8(random_tensor({rows, columns}, DType::BF16, device_, name, scale), format,
                 kWholeTensor);
  }
  std::vector<double> numbers_of(const F8Tensor& x) {
    const Tensor out(x.codes.shape(), DType::F64, device_);
    from_f8(out, x);
    return to_doubles(out);
  }
  // Whether it was one operation on codes, or one on decoded numbers.
  std::string operation_of(View out, const F8Tensor& a, const F8Tensor& b) {
    std::map<std::string, int> calls;
    device_.listen([&](const OpCost& cost) {
      if (cost.product) ++calls[cost.operation];
    });
    f8_matmul(out, a, b);
    device_.listen({});
    return calls.size() == 1 ? calls.begin()->first : std::to_string(calls.size()) + " products";
  }
  std::string codes_on_a_gpu() const {
    return GetParam() == DeviceKind::Cuda ? "f8_matmul" : "matmul";
  }

  // Within a rounding of out's type, and of F32 sums of K terms in any order.
  void expect_sums(ConstView out, const F8Tensor& a, const F8Tensor& b, double before = 0) {
    const std::vector<double> x = numbers_of(a), w = numbers_of(b), found = to_doubles(out);
    const auto K = static_cast<std::size_t>(a.codes.shape()[1]);
    const auto N = static_cast<std::size_t>(b.codes.shape()[0]);
    for (std::size_t i = 0; i < found.size(); ++i) {
      double sum = before, sizes = std::abs(before);
      for (std::size_t k = 0; k < K; ++k) {
        const double term = x[i / N * K + k] * w[i % N * K + k];
        sum += term;
        sizes += std::abs(term);
      }
      const double step = out.dtype() == DType::BF16 ? 0x1p-8 : 0;
      ASSERT_NEAR(found[i], sum, step * std::abs(sum) + 1e-6 * sizes) << i;
    }
  }
};

TEST_P(F8Matmul, IsTheSumOfDecodedProducts) {
  const std::pair<NumberFormat, NumberFormat> formats[] = {
      {kE4M3, kE4M3}, {kE4M3, kE5M2}, {kE5M2, kE4M3}};
  for (const auto& [of_a, of_b] : formats)
    for (const DType dtype : {DType::BF16, DType::F32}) {
      const F8Tensor a = in_f8("a", 32, 48, of_a), b = in_f8("b", 16, 48, of_b, 1e-5);
      const Tensor out({32, 16}, dtype, device_);
      EXPECT_EQ(operation_of(out, a, b), codes_on_a_gpu())
          << of_a.name << " x " << of_b.name << ", " << name_of(dtype);
      expect_sums(out, a, b);
    }
}

// E5M2 twice, sizes that are not multiples of 16, a place in memory that is not one.
TEST_P(F8Matmul, IsTheSameWhereAGpuHasNoSuchProduct) {
  const F8Tensor five = in_f8("a", 16, 16, kE5M2), other = in_f8("b", 16, 16, kE5M2);
  const Tensor out({16, 16}, DType::F32, device_);
  EXPECT_EQ(operation_of(out, five, other), "matmul");
  expect_sums(out, five, other);
  for (const auto& [M, N, K] : {std::array{17, 16, 32}, {16, 1, 32}, {32, 16, 15}}) {
    const F8Tensor a = in_f8("a", M, K, kE4M3), b = in_f8("b", N, K, kE4M3);
    const Tensor odd({M, N}, DType::BF16, device_);
    EXPECT_EQ(operation_of(odd, a, b), "matmul") << M << ", " << N << ", " << K;
    expect_sums(odd, a, b);
  }
  const F8Tensor a = in_f8("a", 16, 16, kE4M3), b = in_f8("b", 16, 16, kE4M3);
  const Tensor wider({16 * 16 + 1}, DType::F32, device_);
  const View shifted = wider.rows(1, 16 * 16 + 1).reshaped({16, 16});
  EXPECT_EQ(operation_of(shifted, a, b), "matmul");
  expect_sums(shifted, a, b);
}

TEST_P(F8Matmul, AddsToWhatIsThere) {
  const F8Tensor a = in_f8("a", 16, 32, kE5M2), b = in_f8("b", 48, 32, kE4M3);
  const Tensor out = from_doubles(std::vector<double>(16 * 48, 3), {16, 48}, DType::F32, device_);
  f8_matmul(out, a, b, ops::Into::Accumulate);
  expect_sums(out, a, b, 3);
  f8_matmul(out, a, b);
  expect_sums(out, a, b);
}

TEST_P(F8Matmul, AddsABias) {
  for (const std::int64_t M : {16, 17}) {
    const F8Tensor a = in_f8("a", M, 16, kE4M3), b = in_f8("b", 16, 16, kE4M3);
    const Tensor out({M, 16}, DType::F32, device_);
    const Tensor bias = from_doubles(std::vector<double>(16, 3), {16}, DType::BF16, device_);
    f8_matmul(out, a, b, ops::Into::Overwrite, bias);
    expect_sums(out, a, b, 3);
  }
}

// The same kind of product with scales elsewhere: each call reads its own.
TEST_P(F8Matmul, TakesTheScalesOfEachCall) {
  const Tensor out({16, 16}, DType::F32, device_);
  const F8Tensor b = in_f8("b", 16, 16, kE4M3);
  std::vector<F8Tensor> kept;  // so that they lie in different places
  for (const double scale : {1.0, 1e6, 1e-9}) {
    kept.push_back(in_f8("a", 16, 16, kE4M3, scale));
    f8_matmul(out, kept.back(), b);
    expect_sums(out, kept.back(), b);
  }
}

TEST_P(F8Matmul, TransposedCodesAreTheTransposedMatrix) {
  const F8Tensor x =
      to_f8(from_doubles({1, 2, 3, 4, 5, 6}, {2, 3}, DType::F32, device_), kE4M3, kWholeTensor);
  const F8Tensor turned = transposed(x);
  EXPECT_EQ(turned.codes.shape(), (Shape{3, 2}));
  EXPECT_EQ(numbers_of(turned), (std::vector<double>{1, 4, 2, 5, 3, 6}));
}

TEST_P(F8Matmul, SaysWhatDoesNotFit) {
  const F8Tensor a = in_f8("a", 2, 3, kE4M3), b = in_f8("b", 4, 5, kE4M3);
  const Tensor out({2, 4}, DType::F32, device_), whole({2, 4}, DType::F16, device_);
  EXPECT_EQ(message_of([&] { f8_matmul(out, a, b); }),
            "f8_matmul: out (2, 4), a (2, 3), b (4, 5), expected (M, N), (M, K), (N, K)");
  const F8Tensor c = in_f8("c", 4, 3, kE4M3);
  EXPECT_EQ(message_of([&] { f8_matmul(whole, a, c); }),
            "f8_matmul: out is F16, expected BF16 or F32");
  const Tensor bias({3}, DType::F32, device_), four({4}, DType::BF16, device_);
  EXPECT_EQ(message_of([&] { f8_matmul(out, a, c, ops::Into::Overwrite, bias); }),
            "f8_matmul: bias (3) F32, expected (4) BF16, and none together with Accumulate");
  EXPECT_EQ(message_of([&] { f8_matmul(out, a, c, ops::Into::Accumulate, four); }),
            "f8_matmul: bias (4) BF16, expected (4) BF16, and none together with Accumulate");
  const F8Tensor rows =
      to_f8(random_tensor({2, 3}, DType::F32, device_, "rows"), kE4M3, kRowBlocks);
  EXPECT_EQ(message_of([&] { f8_matmul(out, rows, c); }),
            "f8_matmul: (2, 3) in F8 with 2 scales, expected 1");
  EXPECT_EQ(message_of([&] { (void)transposed(rows); }),
            "transposed: (2, 3) in F8 with 2 scales, expected 1");
}

INSTANTIATE_TEST_SUITE_P(Devices, F8Matmul, ::testing::ValuesIn(device_kinds()),
                         device_kind_test_name);

}  // namespace
}  // namespace aisc
