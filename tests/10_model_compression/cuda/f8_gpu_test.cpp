// F8 on a GPU has the host's bits: any type, format, blocks and sizes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "10_model_compression/more/eight_bits.h"
#include "10_model_compression/more/f8_matmul.h"
#include "tests/support/devices.h"
#include "tests/support/tensors.h"

namespace aisc {
namespace {

class F8OnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_device(DeviceKind::Cuda)) GTEST_SKIP() << "no GPU";
  }
  Tensor on_gpu(const Tensor& x) {
    Tensor copy(x.shape(), x.dtype(), gpu_);
    gpu_.copy(copy, x);
    return copy;
  }

  CpuDevice host_;
  const std::unique_ptr<Device> owned_gpu_ = make_test_device(DeviceKind::Cuda);
  Device& gpu_ = *owned_gpu_;
};

// Of a NaN only that it is one: a GPU makes its own of it.
void expect_bits_of_host(const char* what, ConstView gpu, ConstView host) {
  ASSERT_EQ(gpu.shape(), host.shape()) << what;
  ASSERT_EQ(gpu.dtype(), host.dtype()) << what;
  const std::vector<double> found = to_doubles(gpu), expected = to_doubles(host);
  for (std::size_t i = 0; i < found.size(); ++i)
    if (!(std::isnan(found[i]) && std::isnan(expected[i]))) {
      ASSERT_TRUE(found[i] == expected[i] && std::signbit(found[i]) == std::signbit(expected[i]))
          << what << '[' << i << "]: " << found[i] << " on the GPU, " << expected[i]
          << " on the host";
    }
}

constexpr DType kTypesOnGpu[] = {DType::F64, DType::F32, DType::BF16, DType::F16};
constexpr ScaleBlocks kBlocksOnGpu[] = {kWholeTensor, kRowBlocks, kSquareBlocks, {3, 7}, {0, 40}};

// Numbers of many sizes, and what is not one.
Tensor many_sizes(const Shape& shape, DType dtype, Device& device) {
  std::vector<double> values = to_doubles(random_tensor(shape, DType::F64, device, "sizes"));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = std::ldexp(values[i], static_cast<int>(i * 7 % 23) - 14);
  const double special[] = {INFINITY, -0.0, NAN, -INFINITY, 1e-40};
  for (std::size_t i = 0; i < std::size(special); ++i)
    if (11 * i + 3 < values.size()) values[11 * i + 3] = special[i];
  return from_doubles(values, shape, dtype, device);
}

TEST_F(F8OnGpu, HasTheBitsOfTheHost) {
  for (const Shape& shape : {Shape{1, 1}, Shape{3, 5}, Shape{1, 128}, Shape{1, 129},
                             Shape{2, 3, 70}, Shape{129, 130}, Shape{0, 4}})
    for (const DType dtype : kTypesOnGpu)
      for (const NumberFormat& format : {kE4M3, kE5M2})
        for (const ScaleBlocks& blocks : kBlocksOnGpu) {
          if (format.infinity && dtype != DType::BF16) continue;  // of one type is enough
          SCOPED_TRACE(testing::Message()
                       << name_of(dtype) << ' ' << shape.to_string() << ' ' << format.name
                       << ", blocks of " << blocks.rows << " x " << blocks.columns);
          const Tensor x = many_sizes(shape, dtype, host_), of_gpu = on_gpu(x);
          const F8Tensor host = to_f8(x, format, blocks), gpu = to_f8(of_gpu, format, blocks);
          expect_bits_of_host("codes", gpu.codes, host.codes);
          expect_bits_of_host("scales", gpu.scales, host.scales);
          const Tensor back(shape, dtype, host_), back_gpu(shape, dtype, gpu_);
          from_f8(back, host);
          from_f8(back_gpu, gpu);
          expect_bits_of_host("from F8", back_gpu, back);
          EXPECT_EQ(largest_magnitude(of_gpu), largest_magnitude(x));
          round_to_f8(x, x, format, blocks);
          round_to_f8(of_gpu, of_gpu, format, blocks);
          expect_bits_of_host("rounded", of_gpu, x);
          if (HasFatalFailure()) return;
        }
}

TEST_F(F8OnGpu, HasTheBitsOfTheHostForEachNumberOfSixteenBits) {
  std::vector<std::uint16_t> all(1 << 16);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  for (const DType dtype : {DType::BF16, DType::F16}) {
    const Tensor x({1 << 16}, dtype, host_);
    std::memcpy(x.view().raw(), all.data(), sizeof all[0] * all.size());
    const Tensor of_gpu = on_gpu(x);
    for (const NumberFormat& format : {kE4M3, kE5M2})
      for (const float scale : {1.0f, 0x1p-20f, 0x1p-100f, 0x1p100f}) {
        SCOPED_TRACE(testing::Message() << name_of(dtype) << ' ' << format.name << ' ' << scale);
        const F8Tensor host = to_f8(x, format, scale), gpu = to_f8(of_gpu, format, scale);
        expect_bits_of_host("codes", gpu.codes, host.codes);
        expect_bits_of_host("scales", gpu.scales, host.scales);
        const Tensor rounded(x.shape(), dtype, host_), rounded_gpu(x.shape(), dtype, gpu_);
        round_to_f8(rounded, x, format, scale);
        round_to_f8(rounded_gpu, of_gpu, format, scale);
        expect_bits_of_host("rounded", rounded_gpu, rounded);
        const Tensor back(x.shape(), DType::F32, host_), back_gpu(x.shape(), DType::F32, gpu_);
        from_f8(back, host);
        from_f8(back_gpu, gpu);
        expect_bits_of_host("from F8", back_gpu, back);
      }
  }
}

// Rows of an odd number of columns begin anywhere.
TEST_F(F8OnGpu, RoundsPartsThatAreNotAligned) {
  for (const DType dtype : kTypesOnGpu)
    for (const ScaleBlocks& blocks : {kWholeTensor, kRowBlocks}) {
      const Tensor x = many_sizes({5, 33}, dtype, host_), of_gpu = on_gpu(x);
      round_to_f8(x.rows(1, 4), x.rows(1, 4), kE4M3, blocks);
      round_to_f8(of_gpu.rows(1, 4), of_gpu.rows(1, 4), kE4M3, blocks);
      expect_bits_of_host("rounded", of_gpu, x);
    }
}

// Of 258 blocks, more than one block has threads for, two rounds each.
TEST_F(F8OnGpu, FindsTheLargestOfMany) {
  constexpr std::int64_t n = 257 * 256 * 16 + 3;
  const Tensor x = Tensor::zeros({n}, DType::BF16, gpu_);
  write_doubles(x.rows(n - 1, n), {-3});
  EXPECT_EQ(largest_magnitude(x), 3.0f);
  EXPECT_EQ(largest_magnitude(x.rows(1, n)), 3.0f) << "not aligned";
  EXPECT_EQ(largest_magnitude(x.rows(0, n - 1)), 0.0f);
}

TEST_F(F8OnGpu, TransposesCodes) {
  for (const Shape& shape : {Shape{1, 1}, Shape{33, 70}, Shape{2, 16, 31}, Shape{0, 3}}) {
    const Tensor x = random_tensor(shape, DType::F32, host_, "x");
    const F8Tensor host = transposed(to_f8(x, kE5M2, kWholeTensor));
    const F8Tensor gpu = transposed(to_f8(on_gpu(x), kE5M2, kWholeTensor));
    expect_bits_of_host("codes", gpu.codes, host.codes);
    expect_bits_of_host("scales", gpu.scales, host.scales);
  }
}

}  // namespace
}  // namespace aisc
