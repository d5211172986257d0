// Scales, zero points and codes: worked by hand, against a scalar reference, and their errors.
#include "10_model_compression/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/support/drawn.h"
#include "tests/support/message_of.h"
#include "tests/support/numbers.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Quantization kAsymmetric8{.symmetry = Symmetry::Asymmetric};
constexpr Quantization kSymmetric4{.bits = 4};
constexpr Quantization kAsymmetric4{.bits = 4, .symmetry = Symmetry::Asymmetric};

// scale / 2, and what F32 adds to it in the division and in the number of a code: of 255 codes a
// few last places of 2^-24.
constexpr double kHalfAStep = 0.5 * (1 + 0x1p-13);

std::vector<Quantization> kinds_of_codes(std::int64_t group) {
  std::vector<Quantization> kinds;
  for (const int bits : {8, 4})
    for (const Symmetry symmetry : {Symmetry::Symmetric, Symmetry::Asymmetric})
      for (const Per per : {Per::Tensor, Per::Channel, Per::Group})
        kinds.push_back({bits, symmetry, per, group});
  return kinds;
}

std::string kind_in_words(const Quantization& how) {
  const char* const per[] = {"a tensor", "a channel", "a group"};
  return std::to_string(how.bits) + " bits, " +
         (how.symmetry == Symmetry::Symmetric ? "symmetric" : "asymmetric") + ", a scale for " +
         per[static_cast<int>(how.per)];
}

// ---- the grid of a range, by hand ---------------------------------------------------------------

void expect_grid(const CodeGrid& grid, double scale, int zero, int lowest, int highest) {
  EXPECT_FLOAT_EQ(grid.scale, static_cast<float>(scale))
      << "the scale: the widest distance that is to be covered, by the steps that cover it";
  EXPECT_EQ(grid.zero, zero) << "the zero point: the code that stands for 0";
  EXPECT_EQ(grid.lowest, lowest) << "the lowest code";
  EXPECT_EQ(grid.highest, highest) << "the highest code";
}

TEST(Quantize, SymmetricGridByHand) {
  SCOPED_TRACE("weights from -2.54 to 1, 8 bits, symmetric: 127 steps reach to 2.54");
  expect_grid(grid_of(-2.54, 1, {}), 0.02, 128, 1, 255);
  if (HasFailure()) return;
  SCOPED_TRACE("weights from -1 to 3.5, 4 bits, symmetric: 7 steps reach to 3.5");
  expect_grid(grid_of(-1, 3.5, kSymmetric4), 0.5, 8, 1, 15);
}

TEST(Quantize, AsymmetricGridByHand) {
  SCOPED_TRACE(
      "weights from -0.5 to 2.05, 8 bits, asymmetric: 255 steps of 0.01, 50 of them below");
  expect_grid(grid_of(-0.5, 2.05, kAsymmetric8), 0.01, 50, 0, 255);
  if (HasFailure()) return;
  SCOPED_TRACE("weights from -1 to 6.5, 4 bits, asymmetric: 15 steps of 0.5, 2 of them below 0");
  expect_grid(grid_of(-1, 6.5, kAsymmetric4), 0.5, 2, 0, 15);
  if (HasFailure()) return;
  SCOPED_TRACE(
      "weights from -1.3 to 6.2, 4 bits: 2.6 of 15 steps of 0.5 are below 0: the nearest is 3");
  expect_grid(grid_of(-1.3, 6.2, kAsymmetric4), 0.5, 3, 0, 15);
}

TEST(Quantize, RangesWithoutZeroAreWidenedToIt) {
  SCOPED_TRACE("asymmetric: all weights lie on one side of 0, which is a number of each grid");
  expect_grid(grid_of(3, 7.5, kAsymmetric4), 0.5, 0, 0, 15);
  expect_grid(grid_of(-7.5, -3, kAsymmetric4), 0.5, 15, 0, 15);
}

TEST(Quantize, ScaleIsOneWhereItWouldBeNoNormalNumber) {
  const double tiny = std::numeric_limits<float>::denorm_min();
  for (const Quantization& how : kinds_of_codes(2))
    for (const double end : {0.0, tiny, 100 * tiny}) {
      const CodeGrid grid = grid_of(0, end, how);
      EXPECT_EQ(grid.scale, 1) << kind_in_words(how) << ": weights from 0 to " << end
                               << ": with a scale of 0 a code would be 0/0";
      EXPECT_EQ(code_of(static_cast<float>(end), grid), grid.zero) << kind_in_words(how);
    }
}

TEST(Quantize, CodesByHand) {
  const CodeGrid grid{.scale = 0.5, .zero = 2, .lowest = 0, .highest = 15};
  const auto code = [&](double value) { return code_of(static_cast<float>(value), grid); };
  EXPECT_EQ(code(0), 2) << "0 is the zero point";
  EXPECT_EQ(code(1), 4) << "1 is two steps of 0.5 above the zero point 2";
  EXPECT_EQ(code(-1), 0);
  EXPECT_EQ(code(0.7), 3) << "0.7 is 1.4 steps: the nearest is 1. Were digits cut off or added?";
  EXPECT_EQ(code(0.8), 4) << "0.8 is 1.6 steps: the nearest is 2. Were digits cut off?";
  EXPECT_EQ(code(-0.8), 0) << "-0.8 is -1.6 steps: the nearest is -2";
  EXPECT_EQ(code(0.25), 2) << "0.25 is 0.5 steps: a tie goes to the even one, 0";
  EXPECT_EQ(code(0.75), 4) << "0.75 is 1.5 steps: a tie goes to the even one, 2";
  EXPECT_EQ(code(1.25), 4) << "1.25 is 2.5 steps: a tie goes to the even one, 2";
}

TEST(Quantize, ValuesBeyondTheGridTakeItsEnds) {
  const CodeGrid symmetric{.scale = 0.5, .zero = 8, .lowest = 1, .highest = 15};
  for (const float far : {100.0f, 3e9f, 3e38f, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(code_of(far, symmetric), 15) << "of " << far << ", beyond the grid's end 3.5";
    EXPECT_EQ(code_of(-far, symmetric), 1) << "of " << -far << ", beyond the grid's end -3.5";
  }
}

// ---- whole weights ------------------------------------------------------------------------------

TEST(Quantize, PacksTwoCodesAByteAndBeginsEachRowAtOne) {
  CpuDevice cpu;
  const Tensor w = from_doubles({1, 2, -3, 7, -7, 4}, {2, 3}, DType::F32, cpu);
  const Codes codes = quantize(w, {.bits = 4, .per = Per::Tensor}, cpu);  // scale 1, zero 8
  EXPECT_EQ(codes.codes.shape(), (Shape{2, 2}));
  EXPECT_THAT(to_doubles(codes.codes), ElementsAre(9 + 16 * 10, 5, 15 + 16 * 1, 12))
      << "rows 1 2 -3 and 7 -7 4: codes 9 10 5 and 15 1 12, the earlier in a byte's lower half";
  EXPECT_THAT(to_doubles(codes.scales), ElementsAre(1));
  EXPECT_FALSE(codes.zero_points) << "symmetric codes have their zero in the middle";
  EXPECT_EQ(codes.bytes(), 4 + 4);
}

TEST(QuantizeGiven, BytesAreThoseOfTheLedger) {
  const Quantization group64{.bits = 4, .symmetry = Symmetry::Asymmetric};
  CpuDevice cpu;
  const Codes codes = make_codes({6, 130}, group64, cpu);
  EXPECT_EQ(codes.scales.shape(), (Shape{6, 3})) << "130 columns are groups of 64, 64 and 2";
  EXPECT_EQ(codes.bytes(), 6 * 65 + 6 * 3 * 4 + 6 * 3);
  EXPECT_EQ(cpu.ledger()[Purpose::Parameters].live_bytes, codes.bytes());
  const Codes shared = codes.share();
  EXPECT_EQ(cpu.ledger()[Purpose::Parameters].live_bytes, codes.bytes());
  EXPECT_EQ(make_codes({6, 130}, {.per = Per::Channel}, cpu).bytes(), 6 * 130 + 6 * 4);
}

// What each number becomes: the range of those that share its scale, and a step of it. In F64 but
// for the scale, so that the two differ by rounding alone.
std::vector<double> reference_scales(const std::vector<double>& w, std::int64_t columns,
                                     const Quantization& how) {
  std::vector<double> scales;
  const auto shares = [&](std::size_t a, std::size_t b) {
    const auto C = static_cast<std::size_t>(columns), G = static_cast<std::size_t>(how.group);
    if (how.per == Per::Tensor) return true;
    if (a / C != b / C) return false;
    return how.per == Per::Channel || a % C / G == b % C / G;
  };
  for (std::size_t a = 0; a < w.size(); ++a) {
    double low = 0, high = 0;
    for (std::size_t b = 0; b < w.size(); ++b)
      if (shares(a, b)) low = std::min(low, w[b]), high = std::max(high, w[b]);
    const int steps = (1 << how.bits) - 1;
    scales.push_back(how.symmetry == Symmetry::Symmetric
                         ? std::max(-low, high) / static_cast<double>(steps / 2)
                         : (high - low) / steps);
  }
  return scales;
}

void expect_within_half_a_step(std::int64_t rows, std::int64_t columns, std::int64_t group,
                               DType dtype) {
  CpuDevice cpu({.poison = true});
  const Tensor w = random_tensor({rows, columns}, dtype, cpu, "w", 0.3);
  // What the numbers lose again where they are stored as short ones.
  const double stored = dtype == DType::BF16 ? 0x1p-8 : dtype == DType::F16 ? 0x1p-11 : 0;
  for (const Quantization& how : kinds_of_codes(group)) {
    const std::vector<double> before = to_doubles(w),
                              scales = reference_scales(before, columns, how);
    const Tensor after(w.shape(), dtype, cpu);
    const Codes codes = quantize(w, how, cpu);
    dequantize(after, codes);
    const std::vector<double> numbers = to_doubles(after);
    for (std::size_t i = 0; i < numbers.size(); ++i)
      ASSERT_LE(std::abs(numbers[i] - before[i]),
                kHalfAStep * scales[i] + stored * std::abs(numbers[i]))
          << kind_in_words(how) << ", (" << rows << ", " << columns << "), groups of " << group
          << ": number " << i << " is " << before[i] << " and became " << numbers[i]
          << ": more than half of the scale " << scales[i] << " away";
    const Tensor in_place = w.clone();
    round_trip(in_place, how);
    EXPECT_TRUE(same_bits(in_place, after)) << kind_in_words(how) << ": round_trip";
    const Tensor some({std::min<std::int64_t>(rows, 2), columns}, dtype, cpu);
    const std::int64_t first = rows - some.shape()[0];
    dequantize_rows(some, codes, first);
    EXPECT_TRUE(same_bits(some, after.rows(first, rows)))
        << kind_in_words(how) << ": the last rows";
  }
}

TEST(Quantize, NumbersAreAtMostHalfAStepAway) {
  for (const auto& [rows, columns] : std::vector<std::pair<std::int64_t, std::int64_t>>{
           {1, 1}, {1, 7}, {5, 64}, {3, 65}, {2, 66}})
    for (const std::int64_t group : {2, 6, 64})
      expect_within_half_a_step(rows, columns, group, DType::F32);
  expect_within_half_a_step(drawn("rows of a quantized weight", 1, 40),
                            drawn("columns of a quantized weight", 1, 200), 32, DType::F32);
}

TEST(Quantize, TakesAnyFloatingType) {
  for (const DType dtype : {DType::F64, DType::BF16, DType::F16})
    expect_within_half_a_step(3, 65, 16, dtype);
}

TEST(Quantize, ZeroStaysZeroInAnyRange) {
  CpuDevice cpu;
  for (const double least : {-3.0, -0.01, 0.0, 0.4})
    for (const Quantization& how : kinds_of_codes(4)) {
      const Tensor w = from_doubles({0, least, 5, 1, 0, 0, 0, 0}, {2, 4}, DType::F32, cpu);
      round_trip(w, how);
      EXPECT_EQ(w.data<float>()[0], 0)
          << kind_in_words(how) << ", weights from " << least << " to 5";
      EXPECT_EQ(w.data<float>()[5], 0) << kind_in_words(how) << ": a row of zeros";
    }
}

// 63 ones and 100: in a tensor 1 is 1.27 steps of 100 / 127, and in a group of its own 127 of
// 1/127.
TEST(Quantize, AnOutlierSpoilsThoseThatShareItsScale) {
  CpuDevice cpu;
  std::vector<double> values(64, 1);
  values[0] = 100;
  const auto with = [&](const Quantization& how) {
    const Tensor w = from_doubles(values, {1, 64}, DType::F32, cpu);
    round_trip(w, how);
    return to_doubles(w);
  };
  const std::vector<double> row = with({.per = Per::Channel});
  EXPECT_NEAR(row[0], 100, 1e-5);
  EXPECT_NEAR(row[1], 100.0 / 127, 1e-6) << "1 beside 100: the scale is 100/127 = 0.787, one step";
  const std::vector<double> groups = with({.group = 16});
  EXPECT_NEAR(groups[15], 100.0 / 127, 1e-6) << "the outlier's own group";
  EXPECT_NEAR(groups[16], 1, 1e-7) << "another group of 16: 1 is its largest, and stays";
  EXPECT_EQ(with({.bits = 4, .per = Per::Channel})[1], 0)
      << "4 bits: the scale is 100/7 = 14.3, and 1 is less than half of it";
}

TEST(Quantize, ClipsShrinkTheRange) {
  CpuDevice cpu;
  const Tensor w = from_doubles({2, -4, 1, 14, 0.5, 1.75}, {2, 3}, DType::F32, cpu);
  const Quantization how{.bits = 4, .per = Per::Channel};
  const Tensor clips = from_doubles({1, 0.5}, {2, 1}, DType::F32, cpu);
  const Codes codes = quantize(w, how, cpu, clips);
  EXPECT_TRUE(numbers_are("scales: 4/7, and half of 14/7", codes.scales, {4.0 / 7, 1}, {}, 1e-6));
  const Tensor out({2, 3}, DType::F32, cpu);
  dequantize(out, codes);
  EXPECT_TRUE(numbers_are("row 14 0.5 1.75 clipped to 7", out.rows(1, 2), {7, 0, 2}));
}

// As tensor ranks have columns of a weight.
TEST(Quantize, PartsThatEndWithGroupsAreThoseOfTheWhole) {
  CpuDevice cpu;
  const Tensor whole = random_tensor({3, 24}, DType::F32, cpu, "w");
  const Tensor part({3, 16}, DType::F32, cpu);
  for (std::int64_t row = 0; row < 3; ++row)
    cpu.copy(part.view().flat(row * 16, 16), whole.view().flat(row * 24 + 8, 16));
  for (const int bits : {8, 4}) {
    const Tensor all = whole.clone(), its = part.clone();
    round_trip(all, {.bits = bits, .group = 8});
    round_trip(its, {.bits = bits, .group = 8});
    for (std::int64_t row = 0; row < 3; ++row)
      EXPECT_TRUE(same_bits(its.view().flat(row * 16, 16), all.view().flat(row * 24 + 8, 16)))
          << bits << " bits, row " << row << ": columns 8 .. 23 of 24, groups of 8";
  }
}

TEST(Quantize, SaysWhatIsWrong) {
  CpuDevice cpu;
  const Tensor w = Tensor::zeros({2, 4}, DType::F32, cpu);
  const auto said = [&](const Quantization& how) {
    return message_of([&] { quantize(w, how, cpu); });
  };
  EXPECT_EQ(said({.bits = 3}), "quantize: 3 bits, expected 8 or 4");
  for (const std::int64_t group : {0, -2, 3})
    EXPECT_EQ(said({.group = group}), "quantize: groups of " + std::to_string(group) +
                                          " weights, expected an even number, 2 or more");
  EXPECT_EQ(message_of([&] {
              quantize(w.view().reshaped({2, 2, 2}), {}, cpu);
            }),
            "quantize: the weight is (2, 2, 2), expected (rows, columns)");
  EXPECT_EQ(message_of([&] { quantize(w, {}, cpu, w); }),
            "quantize: clips are (2, 4), expected (2, 1), one a scale");
  const Codes codes = quantize(w, {}, cpu);
  EXPECT_EQ(message_of([&] {
              dequantize(w.view().reshaped({4, 2}), codes);
            }),
            "dequantize: out is (4, 2), the codes are of a weight (2, 4)");
  EXPECT_EQ(message_of([&] { dequantize_rows(w, codes, 1); }),
            "dequantize: out is (2, 4) from row 1 on, the codes are of a weight (2, 4)");
  for (const double wrong : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    w.data<float>()[6] = static_cast<float>(wrong);
    for (const Quantization& how : kinds_of_codes(2))
      EXPECT_EQ(said(how),
                "quantize: row 1 of 2 holds a weight that is not finite, expected numbers");
    EXPECT_THAT(message_of([&] { round_trip(w, {}); }), HasSubstr("not finite"));
  }
}

TEST(QuantizeGiven, EmptyWeightsHaveNoCodes) {
  CpuDevice cpu;
  for (const Quantization& how : kinds_of_codes(2))
    for (const Shape& shape : {Shape{0, 4}, Shape{3, 0}}) {
      const Tensor w(shape, DType::F32, cpu);
      const Codes codes = quantize(w, how, cpu);
      EXPECT_EQ(codes.codes.count(), 0);
      dequantize(w, codes);
      round_trip(w, how);
    }
}

}  // namespace
}  // namespace aisc
