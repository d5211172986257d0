// A byte a number and a scale a row: by hand, what rounding may do, and rows that are no numbers.
#include "10_model_compression/more/i8_links.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/support/error_says.h"
#include "tests/support/numbers.h"
#include "tests/support/some_gpu.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

// The scale behind a row of C codes.
float scale_of(const Tensor& code, std::int64_t row) {
  const std::int64_t bytes = code.shape()[-1];
  float scale = 0;
  std::memcpy(&scale, code.data<std::uint8_t>() + (row + 1) * bytes - 4, 4);
  return scale;
}

TEST(I8Rows, TwoRowsByHand) {
  CpuDevice device;
  const I8Rows rows;
  const Tensor x = from_doubles({254, -4, 1, 3, 0, 0, 0, 0}, {1, 2, 4}, DType::F32, device);
  const Tensor code = rows.encode(x);
  ASSERT_EQ(code.shape(), (Shape{1, 2, 8})) << "4 codes and 4 bytes of scale a row";
  ASSERT_EQ(code.dtype(), DType::U8);
  const auto* bytes = code.data<std::uint8_t>();
  const int expected[] = {255, 126, 128, 130};  // 1/2 and 3/2 are ties, and go to even: 0 and 2
  for (int c = 0; c < 4; ++c) {
    EXPECT_EQ(bytes[c], expected[c])
        << "row (254 -4 1 3), scale 254 / 127 = 2, code " << c << ": 128 + x / 2, ties to even";
    EXPECT_EQ(bytes[8 + c], 128) << "a row of zeros, code " << c;
  }
  EXPECT_EQ(scale_of(code, 0), 2) << "the largest |x| is 127 steps";
  EXPECT_TRUE(numbers_are("254 -4 1 3 and a row of zeros, decoded: number",
                          rows.decode(code, DType::F32), {254, -4, 0, 4, 0, 0, 0, 0},
                          {{"one scale were taken without the middle, 128",
                            {510, 252, 256, 260, 128, 128, 128, 128}}}));
}

// Each row has its own scale; the distance is half a step of it at most, in every type.
TEST(I8Rows, IsHalfAStepAwayAtMost) {
  CpuDevice device;
  const I8Rows rows;
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16})
    for (const Shape& shape : {Shape{3, 5, 7}, Shape{2, 1}, Shape{300, 130}}) {
      const Tensor x = random_tensor(shape, dtype, device, "x", 3);
      const Tensor code = rows.encode(x), back = rows.decode(code, dtype);
      EXPECT_EQ(code.shape(), shape.with(-1, shape[-1] + 4));
      ASSERT_EQ(back.shape(), shape);
      ASSERT_EQ(back.dtype(), dtype);
      const std::vector<double> a = to_doubles(x), b = to_doubles(back);
      const double rounding = dtype == DType::BF16 ? 0x1p-8 : dtype == DType::F16 ? 0x1p-11 : 1e-6;
      for (std::size_t i = 0; i < a.size(); ++i) {
        const double scale = scale_of(code, static_cast<std::int64_t>(i) / shape[-1]);
        EXPECT_NEAR(b[i], a[i], scale / 2 + rounding * (std::abs(a[i]) + scale))
            << name_of(dtype) << ", number " << i;
      }
    }
}

// What overflows is seen, in its own row alone; what is hardly a number is 0.
TEST(I8Rows, KeepsWhatIsNotFiniteApart) {
  CpuDevice device;
  const I8Rows rows;
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const Tensor x = from_doubles({1, inf, nan, 2, 3, -1, 1e-41, -1e-41}, {4, 2}, DType::F32, device);
  const std::vector<double> found = to_doubles(rows.decode(rows.encode(x), DType::F32));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(std::isnan(found[i])) << "number " << i;
  EXPECT_NEAR(found[4], 3, 1e-6);
  EXPECT_NEAR(found[5], -1, 3 / 127.0 / 2);
  EXPECT_EQ(found[6], 0);
  EXPECT_EQ(found[7], 0);
}

TEST(I8Rows, NoRowsAreNoBytes) {
  CpuDevice device;
  const I8Rows rows;
  const Tensor code = rows.encode(Tensor({0, 5}, DType::F32, device));
  EXPECT_EQ(code.shape(), (Shape{0, 9}));
  EXPECT_EQ(rows.decode(code, DType::BF16).shape(), (Shape{0, 5}));
}

TEST(I8Rows, WorksOnTheHost) {
  SomeGpu gpu;
  const I8Rows rows;
  EXPECT_TRUE(error_says(
      [&] {
        rows.encode(Tensor({2, 3}, DType::F32, gpu));
      },
      {"stage links: activations on cuda:0, expected on the host"}));
}

TEST(I8Links, CodeWhatIsChosen) {
  const LinkCodes forward = i8_links(Coded::Activations),
                  both = i8_links(Coded::ActivationsAndGradients);
  EXPECT_TRUE(forward.forward && !forward.backward);
  EXPECT_TRUE(both.forward && both.backward);
}

}  // namespace
}  // namespace aisc
