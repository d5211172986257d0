// Tensors in F8: scales, blocks and codes against loops over encode() and decode().
#include "10_model_compression/more/eight_bits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <bit>
#include <limits>

#include "10_model_compression/more/f8_matmul.h"
#include "10_model_compression/more/largest_of_steps.h"
#include "common/comm/launch.h"
#include "common/core/range.h"
#include "common/model/emulated_device.h"
#include "tests/10_model_compression/f8_by_loops.h"
#include "tests/support/drawn.h"
#include "tests/support/has_cuda.h"
#include "tests/support/message_of.h"
#include "tests/support/some_gpu.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

using f8::by_loops;
using f8::Expected;
using testing::HasSubstr;

constexpr float kInfiniteF32 = std::numeric_limits<float>::infinity();
constexpr DType kTypesToRound[] = {DType::F64, DType::F32, DType::BF16, DType::F16};

TEST(F8Scale, IsTheSmallestPowerOfTwoThatFitsByHand) {
  EXPECT_EQ(f8_scale(kE4M3, 448), 1.0f);
  EXPECT_EQ(f8_scale(kE4M3, 449), 2.0f);
  EXPECT_EQ(f8_scale(kE4M3, 1), 0x1p-8f) << "1 / 2^-8 = 256 <= 448, and 512 is too large";
  EXPECT_EQ(f8_scale(kE4M3, 1.75f), 0x1p-8f);
  EXPECT_EQ(f8_scale(kE4M3, 1.76f), 0x1p-7f);
  EXPECT_EQ(f8_scale(kE5M2, 1), 0x1p-15f);
  EXPECT_EQ(f8_scale(kE5M2, 57345), 2.0f);
  EXPECT_EQ(f8_scale(kE4M3, 0), 1.0f) << "of nothing but zeros";
  EXPECT_EQ(f8_scale(kE4M3, 1e-40f), 0x1p-100f) << "no smaller one: BF16 has no such numbers";
  EXPECT_EQ(f8_scale(kE4M3, std::numeric_limits<float>::max()), 0x1p120f);
}

// The fast rounding of every BF16 number, and of drawn F32 ones, is encode()'s.
TEST(RoundToF8, IsEncodesForAllBf16AndForF32) {
  CpuDevice device;
  std::vector<float> values;
  for (std::uint32_t bits = 0; bits < 65536; ++bits)
    values.push_back(std::bit_cast<float>(bits << 16));
  const Philox random(test_seed(), "numbers to round");
  for (std::uint64_t i = 0; i < 30000; ++i)
    values.push_back(std::bit_cast<float>((random.bits(2 * i) & 0x807fffffu) |
                                          (112 + random.bits(2 * i + 1) % 32) << 23));
  Tensor x({std::ssize(values)}, DType::F32, device), out({std::ssize(values)}, DType::F32, device);
  std::copy(values.begin(), values.end(), x.data<float>());
  for (const NumberFormat& format : {kE4M3, kE5M2})
    for (const float scale : {1.0f, 0x1p-30f, 0x1p20f}) {
      round_to_f8(out, x, format, scale);
      const float* found = out.data<float>();
      for (std::size_t i = 0; i < values.size(); ++i) {
        const float expected =
            rounded(format, static_cast<double>(values[i]) / scale, Overflow::Saturate) * scale;
        if (std::isnan(expected)) {
          ASSERT_TRUE(std::isnan(found[i])) << values[i];
        } else {
          ASSERT_EQ(std::bit_cast<std::uint32_t>(found[i]), std::bit_cast<std::uint32_t>(expected))
              << values[i] << " in " << format.name << ", scale " << scale;
        }
      }
    }
}

TEST(ToF8, CodesAndScalesAreThoseOfLoops) {
  CpuDevice device({.poison = true});
  const std::vector<std::pair<Shape, ScaleBlocks>> cases = {
      {{3, 5}, kWholeTensor},     {{3, 5}, kRowBlocks},    {{3, 5}, {2, 2}},
      {{2, 3, 300}, kRowBlocks},  {{7, 129}, {0, 128}},    {{130, 257}, kSquareBlocks},
      {{129, 130}, kWholeTensor}, {{1, 1}, kSquareBlocks}, {{200}, kRowBlocks},
      {{0, 5}, kRowBlocks},       {{0, 5}, kWholeTensor},  {{5, 0}, kSquareBlocks}};
  for (const auto& [shape, blocks] : cases)
    for (const DType dtype : kTypesToRound)
      for (const NumberFormat& format : {kE4M3, kE5M2}) {
        SCOPED_TRACE(testing::Message()
                     << shape.to_string() << ' ' << name_of(dtype) << ' ' << format.name
                     << ", blocks of " << blocks.rows << " x " << blocks.columns);
        const Tensor x = random_tensor(shape, dtype, device, "x", 0.01);
        if (x.count() > 3) write_doubles(x.view().reshaped({x.count()}).rows(1, 2), {0});
        const Expected expected = by_loops(to_doubles(x), shape[-1], format, blocks);
        const F8Tensor f8 = to_f8(x, format, blocks);
        if (x.count() > 0) {
          EXPECT_EQ(to_doubles(f8.scales), expected.scales);
        }
        const auto codes = f8.codes.values<std::uint8_t>();
        EXPECT_EQ(std::vector<std::uint32_t>(codes.begin(), codes.end()), expected.codes);
        Tensor back(shape, dtype, device), in_place = x.clone();
        from_f8(back, f8);
        EXPECT_EQ(to_doubles(back), expected.numbers);
        round_to_f8(in_place, in_place, format, blocks);
        EXPECT_TRUE(same_bits(back, in_place)) << "rounding is not a way through the codes";
      }
}

TEST(ToF8, SpendsAScaleOnEachBlockByHand) {
  CpuDevice device;
  // Two rows, one a thousand times the other: with one scale the small row is lost.
  const Tensor x = from_doubles({1024, 512, 0.001, 0.002}, {2, 2}, DType::F32, device);
  const Tensor out({2, 2}, DType::F32, device);
  round_to_f8(out, x, kE4M3, kWholeTensor);
  EXPECT_EQ(to_doubles(out), (std::vector<double>{1024, 512, 0, 0}))
      << "scale 4: the smallest number is 4 * 2^-9 = 0.0078, and 0.002 is less than half of it";
  round_to_f8(out, x, kE4M3, kRowBlocks);
  EXPECT_EQ(to_doubles(out), (std::vector<double>{1024, 512, 0x1p-10, 0x1p-9}))
      << "a scale of its own for the second row: 0.002 is near 2^-9";
}

// Who rounds in F8 must not hide that a product overflowed.
TEST(ToF8, KeepsWhatIsNotFinite) {
  CpuDevice device;
  const std::vector<double> values{1, -kInfiniteF32, std::nan(""), 0.3, -0.0};
  for (const DType dtype : kTypesToRound)
    for (const ScaleBlocks& blocks : {kWholeTensor, kRowBlocks}) {
      const Tensor x = from_doubles(values, {1, 5}, dtype, device);
      const F8Tensor e4 = to_f8(x, kE4M3, blocks), e5 = to_f8(x, kE5M2, blocks);
      const Tensor four(x.shape(), dtype, device), five(x.shape(), dtype, device);
      from_f8(four, e4);
      from_f8(five, e5);
      const std::vector<double> a = to_doubles(four), b = to_doubles(five);
      EXPECT_TRUE(std::isnan(a[1]) && std::isnan(a[2])) << "E4M3 has no infinity: NaN";
      EXPECT_EQ(b[1], -kInfiniteF32);
      EXPECT_TRUE(std::isnan(b[2]));
      for (const auto& found : {a, b}) {
        EXPECT_EQ(found[0], 1) << "the scale is that of the finite numbers";
        EXPECT_NEAR(found[3], 0.3, 0.02);
        EXPECT_TRUE(found[4] == 0 && std::signbit(found[4]));
      }
      const Tensor again(x.shape(), dtype, device);
      round_to_f8(again, x, kE5M2, blocks);
      EXPECT_TRUE(std::isinf(to_doubles(again)[1]) && std::isnan(to_doubles(again)[2]));
      EXPECT_EQ(largest_magnitude(x), 1.0f);
    }
}

TEST(RoundToF8, SaturatesBeyondAScaleThatWasKnownBefore) {
  CpuDevice device;
  const Tensor x = from_doubles({1000, -1e30, 3, 0.01}, {4}, DType::BF16, device);
  round_to_f8(x, x, kE4M3, 0.5f);
  EXPECT_EQ(to_doubles(x), (std::vector<double>{224, -224, 3, 5 * 0x1p-9}));
}

// A product of decoded numbers is that of their codes, times both scales, in F32 exactly.
TEST(ToF8, ScalesArePowersOfTwoSoThatProductsAreExact) {
  CpuDevice device;
  const Tensor a = random_tensor({1, 200}, DType::F32, device, "a", 3e-4);
  const Tensor b = random_tensor({1, 200}, DType::F32, device, "b", 70);
  const F8Tensor fa = to_f8(a, kE4M3, kRowBlocks), fb = to_f8(b, kE5M2, kRowBlocks);
  const Tensor na(a.shape(), DType::F32, device), nb(b.shape(), DType::F32, device);
  from_f8(na, fa);
  from_f8(nb, fb);
  for (std::int64_t i = 0; i < 200; ++i) {
    const float codes = decode(kE4M3, fa.codes.data<std::uint8_t>()[i]) *
                        decode(kE5M2, fb.codes.data<std::uint8_t>()[i]);
    const float scales = fa.scales.data<float>()[i / 128] * fb.scales.data<float>()[i / 128];
    EXPECT_EQ(na.data<float>()[i] * nb.data<float>()[i], codes * scales);
  }
}

TEST(ToF8, IsTheSameForAnyNumberOfThreads) {
  CpuDevice device;
  const Tensor x = random_tensor({300, 301}, DType::BF16, device, "x");
  const int threads = omp_get_max_threads();
  for (const ScaleBlocks& blocks : {kWholeTensor, kRowBlocks, kSquareBlocks}) {
    omp_set_num_threads(1);
    const F8Tensor one = to_f8(x, kE4M3, blocks);
    omp_set_num_threads(3);
    const F8Tensor three = to_f8(x, kE4M3, blocks);
    omp_set_num_threads(threads);
    EXPECT_TRUE(same_bits(one.codes, three.codes) && same_bits(one.scales, three.scales));
  }
}

TEST(ToF8, OnADeviceWithoutNumbersDoesNothing) {
  const Machine machine = find_machine("dgx-a100");
  launch(on_machine(machine, 1, {.meta = true}), [](const Rank& rank) {
    const Tensor x({4, 300}, DType::BF16, rank.device);
    const double before = rank.clock.now();
    const F8Tensor f8 = to_f8(x, kE4M3, kRowBlocks);
    EXPECT_EQ(f8.scales.shape(), (Shape{4, 3}));
    from_f8(x, f8);
    round_to_f8(x, x, kE4M3, kSquareBlocks);
    round_to_f8(x, x, kE4M3, 1.0f);
    EXPECT_EQ(largest_magnitude(x), 0.0f);
    EXPECT_GT(rank.clock.now(), before) << "but it takes time";
  });
}

TEST(LargestOfSteps, HistoryOfThreeByHand) {
  LargestOfSteps history(3);
  EXPECT_EQ(history.before(0), 0.0f) << "the first step knows nothing";
  const float largest[] = {8, 2, 1, 4, 3, 0.5};
  const float known[] = {0, 8, 8, 8, 4, 4, 4, 3};
  for (std::uint64_t step = 0; step < 8; ++step) {
    EXPECT_EQ(history.before(step), known[step])
        << "of steps " << step << " - 3 to " << step << " - 1";
    if (step >= 6) continue;
    history.record(step, largest[step]);
    EXPECT_EQ(history.before(step), known[step]) << "a step does not count for itself";
  }
  history.record(9, 7);
  history.record(9, 5);  // another micro-batch
  EXPECT_EQ(history.before(10), 7.0f);
  EXPECT_EQ(history.before(13), 0.0f) << "it was longer than 3 steps ago";
  EXPECT_EQ(message_of([] { LargestOfSteps none(0); }), "a history of 0 steps, expected 1 or more");
}

TEST(ToF8, IsForTheHostsMemoryWithoutCuda) {
  if (has_cuda()) return;  // then it is a GPU that there is none of
  SomeGpu gpu;
  const Tensor x({2, 3}, DType::F32, gpu), codes({2, 3}, DType::U8, gpu), one({1}, DType::F32, gpu);
  const F8Tensor f8{kE4M3, kWholeTensor, codes.share(), one.share()};
  const Tensor y({2, 2}, DType::F32, gpu);
  const auto message =
      "F8: numbers on cuda:0, expected on the host: this program was built without CUDA (./aisc "
      "build cuda makes one with it)";
  EXPECT_EQ(message_of([&] { round_to_f8(x, x, kE4M3, kRowBlocks); }), message);
  EXPECT_EQ(message_of([&] { (void)largest_magnitude(x); }), message);
  EXPECT_EQ(message_of([&] { (void)to_f8(x, kE4M3, 1.0f); }), message);
  EXPECT_EQ(message_of([&] { from_f8(x, f8); }), message);
  EXPECT_EQ(message_of([&] { (void)transposed(f8); }), message);
  EXPECT_EQ(message_of([&] { f8_matmul(y, f8, f8); }), message);
}

TEST(ToF8, SaysWhatDoesNotFit) {
  CpuDevice device;
  const Tensor x = random_tensor({2, 3}, DType::F32, device, "x");
  const Tensor other({7}, DType::F32, device), shorter({2, 3}, DType::BF16, device);
  EXPECT_THAT(message_of([&] { (void)to_f8(x, kF16, kRowBlocks); }),
              HasSubstr("to_f8: F16 has 16 bits, expected 8"));
  EXPECT_THAT(message_of([&] { round_to_f8(x, x, kBF16, 1.0f); }),
              HasSubstr("round_to_f8: BF16 has 16 bits, expected 8"));
  EXPECT_EQ(message_of([&] { round_to_f8(other, x, kE4M3, kRowBlocks); }),
            "round_to_f8: out is (7) F32, expected (2, 3) F32");
  EXPECT_EQ(message_of([&] { round_to_f8(shorter, x, kE4M3, 1.0f); }),
            "round_to_f8: out is (2, 3) BF16, expected (2, 3) F32");
  EXPECT_THAT(message_of([&] { from_f8(other, to_f8(x, kE4M3, kRowBlocks)); }),
              HasSubstr("from_f8: out is (7) F32"));
  EXPECT_THAT(message_of([&] { (void)largest_magnitude(Tensor({2}, DType::I32, device)); }),
              HasSubstr("a floating type is needed, found I32"));
}

}  // namespace
}  // namespace aisc
