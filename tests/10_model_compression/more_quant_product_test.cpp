// Products with codes: by hand, and against a scalar product with the numbers of the codes.
#include "10_model_compression/more/quant_product.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <omp.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/support/drawn.h"
#include "tests/support/message_of.h"
#include "tests/support/numbers.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

// y = x W^T + bias in F64, W the numbers of the codes, and how large its terms are together.
struct ScalarProduct {
  std::vector<double> y, size;
};
ScalarProduct scalar_product(ConstView x, const Codes& codes, ConstView bias) {
  CpuDevice cpu;
  const Tensor weight(codes.shape, DType::F32, cpu);
  dequantize(weight, codes);
  const std::vector<double> w = to_doubles(weight), rows = to_doubles(x);
  const std::vector<double> b = bias ? to_doubles(bias) : std::vector<double>();
  const auto N = static_cast<std::size_t>(x.shape()[0]);
  const auto O = static_cast<std::size_t>(codes.shape[0]);
  const auto I = static_cast<std::size_t>(codes.shape[1]);
  ScalarProduct expected;
  for (std::size_t n = 0; n < N; ++n)
    for (std::size_t o = 0; o < O; ++o) {
      double sum = b.empty() ? 0 : b[o], size = std::abs(sum);
      for (std::size_t i = 0; i < I; ++i) {
        const double term = rows[n * I + i] * w[o * I + i];
        sum += term;
        size += std::abs(term);
      }
      expected.y.push_back(sum);
      expected.size.push_back(size);
    }
  return expected;
}

// Some roundings of F32 of each sum of a hundred terms.
constexpr double kProductRounded = 0x1p-20;

void expect_product(std::int64_t N, const Shape& shape, const Quantization& how, bool with_bias) {
  CpuDevice cpu({.poison = true});
  const std::string sizes = std::to_string(N) + " rows, weight " + shape.to_string() + ", " +
                            std::to_string(how.bits) + " bits, groups of " +
                            std::to_string(how.per == Per::Group ? how.group : shape[1]);
  const Tensor w = random_tensor(shape, DType::F32, cpu, "w" + sizes);
  const Tensor x = random_tensor({N, shape[1]}, DType::F32, cpu, "x" + sizes);
  const Tensor bias = random_tensor({shape[0]}, DType::F32, cpu, "bias" + sizes);
  const Codes codes = quantize(w, how, cpu);
  const Tensor y({N, shape[0]}, DType::F32, cpu);
  const ConstView its = with_bias ? ConstView(bias) : ConstView();
  quant_product(y, x, codes, its);
  const ScalarProduct expected = scalar_product(x, codes, its);
  const std::vector<double> found = to_doubles(y);
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(found[i], expected.y[i], kProductRounded * expected.size[i])
        << sizes << (with_bias ? ", with a bias" : "") << ": y[" << i << "]";
}

constexpr Symmetry kSymmetries[] = {Symmetry::Symmetric, Symmetry::Asymmetric};

TEST(QuantProduct, TwoRowsByHand) {
  CpuDevice cpu;
  // Scale 0.5 and zero point 2: rows 1 2 and 0 -1.
  for (const int bits : {8, 4}) {
    Codes codes = make_codes({2, 2}, {bits, Symmetry::Asymmetric, Per::Tensor}, cpu);
    write_doubles(codes.scales, {0.5});
    codes.zero_points.data<std::uint8_t>()[0] = 2;
    const std::vector<std::uint8_t> rows = bits == 8 ? std::vector<std::uint8_t>{4, 6, 2, 0}
                                                     : std::vector<std::uint8_t>{4 + 6 * 16, 2};
    std::copy(rows.begin(), rows.end(), codes.codes.data<std::uint8_t>());
    const Tensor x = from_doubles({1, 10, 100, 1000}, {2, 2}, DType::F32, cpu);
    const Tensor bias = from_doubles({5, 6}, {2}, DType::F32, cpu);
    const Tensor y({2, 2}, DType::F32, cpu);
    quant_product(y, x, codes, bias);
    EXPECT_TRUE(numbers_are(std::to_string(bits) + " bits: rows 1 10 and 100 1000 times 1 2 and "
                                                   "0 -1, and a bias 5 6: y",
                            y, {26, -4, 2105, -994},
                            {{"the zero point was not subtracted", {37, 7, 3205, 106}}}));
  }
}

TEST(QuantProduct, IsTheScalarProductForAwkwardSizes) {
  for (const int bits : {8, 4})
    for (const Symmetry symmetry : kSymmetries)
      for (const std::int64_t N : {1, 2, 3, 4, 5, 9})
        for (const Shape& shape : {Shape{1, 1}, Shape{3, 2}, Shape{17, 63}, Shape{2, 64},
                                   Shape{33, 65}, Shape{5, 200}, Shape{16, 256}}) {
          expect_product(N, shape, {bits, symmetry, Per::Group, 64}, true);
          expect_product(N, shape, {bits, symmetry, Per::Channel}, false);
        }
}

TEST(QuantProduct, IsTheScalarProductForAnyGroup) {
  for (const int bits : {8, 4})
    for (const Symmetry symmetry : kSymmetries)
      for (const std::int64_t group : {2, 6, 32, 66, 128, 1000}) {
        expect_product(1, {7, 150}, {bits, symmetry, Per::Group, group}, true);
        expect_product(3, {7, 131}, {bits, symmetry, Per::Group, group}, true);
      }
  for (const std::int64_t N : {1, 8})
    expect_product(N,
                   {drawn("outputs of a quantized product", 1, 100),
                    drawn("inputs of a quantized product", 1, 300)},
                   {.bits = 4, .per = Per::Tensor}, true);
}

// Blocks are of 2^18 numbers: here 65 rows, then 35.
TEST(QuantProduct, DecodesMoreThanOneBlock) { expect_product(6, {100, 4000}, {.bits = 4}, true); }

// What lies behind a group's last code, and behind a row of x, belongs to somebody else.
TEST(QuantProduct, RowsOfXDoNotMeetEachOther) {
  CpuDevice cpu({.poison = true});
  for (const int bits : {8, 4})
    for (const std::int64_t N : {2, 4, 6}) {
      const Codes codes =
          quantize(random_tensor({5, 67}, DType::F32, cpu, "w"), {.bits = bits, .group = 6}, cpu);
      const Tensor x = random_tensor({N, 67}, DType::F32, cpu, "x"), y({N, 5}, DType::F32, cpu);
      for (std::int64_t i = 0; i < 67; ++i)
        x.data<float>()[67 + i] = std::numeric_limits<float>::quiet_NaN();
      quant_product(y, x, codes);
      const std::vector<double> found = to_doubles(y);
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_EQ(std::isnan(found[i]), i / 5 == 1)
            << "row 1 of " << N << " rows of x is NaN, and y's row 1 alone: y[" << i << "]";
    }
}

TEST(QuantProduct, HasTheSameBitsForAnyNumberOfThreads) {
  CpuDevice cpu;
  const Tensor w = random_tensor({301, 150}, DType::F32, cpu, "w");
  const Tensor x = random_tensor({3, 150}, DType::F32, cpu, "x");
  const Codes codes = quantize(w, {.bits = 4}, cpu);
  const int threads = omp_get_max_threads();
  const Tensor one({3, 301}, DType::F32, cpu), four({3, 301}, DType::F32, cpu);
  omp_set_num_threads(1);
  quant_product(one, x, codes);
  omp_set_num_threads(4);
  quant_product(four, x, codes);
  omp_set_num_threads(threads);
  EXPECT_TRUE(same_bits(one, four));
}

TEST(QuantProduct, HoldsNoWholeWeight) {
  constexpr std::int64_t kO = 1000, kI = 1000;
  CpuDevice cpu;
  const Codes codes = make_codes({kO, kI}, {}, cpu);
  std::fill_n(codes.codes.data<std::uint8_t>(), kO * kI, std::uint8_t{128});
  std::fill_n(codes.scales.data<float>(), codes.scales.count(), 1.0f);
  for (const std::int64_t N : {1, 4, 8}) {
    const Tensor x = Tensor::zeros({N, kI}, DType::F32, cpu), y({N, kO}, DType::F32, cpu);
    const std::int64_t before = cpu.ledger().total.live_bytes;
    cpu.reset_peaks();
    quant_product(y, x, codes);
    EXPECT_LT(cpu.ledger().total.peak_bytes - before, (std::int64_t{5} << 20) / 4)
        << N << " rows: a whole weight in F32 has 4 MB, a block 1 MiB";
    EXPECT_EQ(cpu.ledger().total.live_bytes, before);
  }
}

TEST(QuantProduct, TellsTheDeviceWhatItCosts) {
  CpuDevice cpu;
  const Codes codes = quantize(random_tensor({6, 64}, DType::F32, cpu, "w"), {.bits = 4}, cpu);
  const Tensor x = Tensor::zeros({2, 64}, DType::F32, cpu), y({2, 6}, DType::F32, cpu);
  OpCost told;
  cpu.listen([&](const OpCost& cost) { told = cost; });
  quant_product(y, x, codes);
  EXPECT_STREQ(told.operation, "quant_product");
  EXPECT_EQ(told.flops, 2 * 2 * 6 * 64);
  EXPECT_EQ(told.bytes, 6 * 32 + 6 * 4 + 2 * 64 * 4 + 2 * 6 * 4);
}

TEST(QuantProduct, SaysWhatIsWrong) {
  CpuDevice cpu;
  const Codes codes = make_codes({3, 4}, {}, cpu);
  const Tensor x({2, 4}, DType::F32, cpu), y({2, 3}, DType::F32, cpu), four({4}, DType::F32, cpu);
  const Tensor wide({2, 4}, DType::F64, cpu);
  EXPECT_EQ(message_of([&] { quant_product(y, y, codes); }),
            "quant_product: x is (2, 3) F32, expected (2, 4) F32");
  EXPECT_EQ(message_of([&] { quant_product(y, wide, codes); }),
            "quant_product: x is (2, 4) F64, expected (2, 4) F32");
  EXPECT_EQ(message_of([&] { quant_product(x, x, codes); }),
            "quant_product: y is (2, 4) F32, expected (2, 3) F32");
  EXPECT_EQ(message_of([&] { quant_product(y, x, codes, four); }),
            "quant_product: bias is (4) F32, expected (3) F32");
  const Tensor none({0, 4}, DType::F32, cpu), no_y({0, 3}, DType::F32, cpu);
  quant_product(no_y, none, codes);  // no rows: nothing to do
}

}  // namespace
}  // namespace aisc
