// A bit for a yes or no, and tensors without their zeros: what comes back has the same bits.
#include "10_model_compression/more/packed_bits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/model/emulated_device.h"
#include "common/ops/ops.h"
#include "tests/nn/gpt_fixture.h"
#include "tests/support/error_says.h"

namespace aisc {
namespace {

using ::testing::ElementsAre;

Tensor bytes_tensor(const std::vector<int>& values, Device& device) {
  Tensor x({std::ssize(values)}, DType::U8, device);
  std::copy(values.begin(), values.end(), x.data<std::uint8_t>());
  return x;
}

TEST(PackedBits, NineOfAMaskByHand) {
  TestWorld world;
  const Tensor mask = bytes_tensor({1, 0, 1, 1, 0, 0, 0, 0, 1}, world.device);
  const Tensor bits = pack_mask(mask);
  EXPECT_THAT(to_doubles(bits), ElementsAre(13, 1))
      << "1 + 4 + 8 are elements 0, 2 and 3; element 8 begins a byte of its own";
  const Tensor back({9}, DType::U8, world.device);
  unpack_bits(back, bits);
  EXPECT_TRUE(same_bits(back, mask));
}

TEST(PackedBits, MasksOfAnyLengthComeBack) {
  TestWorld world;
  const Philox random(3, "mask");
  for (const std::int64_t count : {0, 1, 7, 8, 9, 511, 512, 513, 4096, 65537}) {
    Tensor mask({count}, DType::U8, world.device);
    for (std::int64_t i = 0; i < count; ++i)
      mask.data<std::uint8_t>()[i] =
          static_cast<std::uint8_t>(random.below(static_cast<std::uint64_t>(i), 2));
    const Tensor bits = pack_mask(mask);
    EXPECT_EQ(static_cast<std::int64_t>(bits.bytes()), (count + 7) / 8);
    const Tensor back({count}, DType::U8, world.device);
    unpack_bits(back, bits);
    EXPECT_TRUE(same_bits(back, mask)) << count << " elements";
  }
}

// Gist's first example: of a ReLU in front of a pooling backward asks for nothing but x > 0.
TEST(PackedBits, AReluNeedsNothingButSigns) {
  TestWorld world;
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16}) {
    Tensor x = random_tensor({37, 29}, dtype, world.device, "x");
    std::vector<double> values = to_doubles(x);
    values[0] = 0;
    values[1] = -0.0;
    values[2] = std::numeric_limits<double>::quiet_NaN();
    values[3] = std::numeric_limits<double>::infinity();
    write_doubles(x, values);
    const Tensor dy = random_tensor(x.shape(), dtype, world.device, "dy");
    const Tensor expected(x.shape(), dtype, world.device), found(x.shape(), dtype, world.device);
    ops::relu_backward(expected, dy, x);
    const Tensor bits = pack_signs(x);
    EXPECT_EQ(bits.bytes(), (37u * 29 + 7) / 8);
    const Tensor signs(x.shape(), dtype, world.device);
    unpack_bits(signs, bits);
    ops::relu_backward(found, dy, signs);
    EXPECT_TRUE(same_bits(found, expected))
        << name_of(dtype) << ": the backward of a ReLU by the bits of x > 0, as 0 and 1";
    // The output has the same signs as the input.
    const Tensor y(x.shape(), dtype, world.device);
    ops::relu(y, x);
    EXPECT_TRUE(same_bits(pack_signs(y), bits)) << name_of(dtype);
  }
}

TEST(SparseTensors, EightByHand) {
  TestWorld world;
  const Tensor x = from_doubles({0, 2.5, 0, 0, -0.0, 0, 0, 7}, {2, 4}, DType::F32, world.device);
  EXPECT_EQ(nonzero_count(x), 3) << "2.5, 7, and -0, whose sign has to come back";
  const SparseTensor sparse = to_sparse(x, 3);
  EXPECT_THAT(to_doubles(sparse.bits), ElementsAre(2 + 16 + 128));
  EXPECT_THAT(to_doubles(sparse.values), ElementsAre(2.5, 0, 7));
  EXPECT_EQ(sparse.bits.bytes() + sparse.values.bytes(), 13u) << "in place of 32";
  const Tensor back({2, 4}, DType::F32, world.device);
  from_sparse(back, sparse);
  EXPECT_TRUE(same_bits(back, x));
}

// Blocks of 4096 elements: some with no value, some with nothing else.
TEST(SparseTensors, OfAnySizeTypeAndShareComeBack) {
  TestWorld world;
  const Philox random(5, "zeros");
  for (const DType dtype : {DType::F64, DType::F32, DType::BF16, DType::F16})
    for (const std::int64_t count : {0, 1, 8, 4095, 4096, 4097, 20011})
      for (const double share : {0.0, 0.3, 1.0}) {
        std::vector<double> values(static_cast<std::size_t>(count));
        std::int64_t nonzeros = 0;
        for (std::size_t i = 0; i < values.size(); ++i) {
          const bool is_zero = (i / 4096) % 2 == 1 || random.uniform(i) < share;
          values[i] = is_zero ? 0 : 1 + random.uniform(i);
          nonzeros += is_zero ? 0 : 1;
        }
        const Tensor x = from_doubles(values, {count}, dtype, world.device);
        ASSERT_EQ(nonzero_count(x), nonzeros);
        const SparseTensor sparse = to_sparse(x, nonzeros);
        const Tensor back({count}, dtype, world.device);
        from_sparse(back, sparse);
        EXPECT_TRUE(same_bits(back, x)) << count << " " << name_of(dtype) << ", zeros " << share;
      }
}

TEST(PackedBitsGiven, WithoutNumbersThereAreBytes) {
  const Machine machine = find_machine("dgx-2");
  launch(on_machine(machine, 1, {.meta = true}), [](const Rank& rank) {
    const Tensor x({100}, DType::F32, rank.device), mask({100}, DType::U8, rank.device);
    EXPECT_EQ(pack_mask(mask).bytes(), 13u);
    EXPECT_EQ(pack_signs(x).bytes(), 13u);
    EXPECT_EQ(nonzero_count(x), 100) << "nobody knows zeros";
    const SparseTensor sparse = to_sparse(x, 100);
    unpack_bits(mask, sparse.bits);
    from_sparse(x, sparse);
    EXPECT_GT(rank.clock.now(), 0) << "passes over memory take time";
  });
}

TEST(PackedBitsGiven, RefusesWhatDoesNotFit) {
  TestWorld world;
  const Tensor x = from_doubles({1, 0, 2}, {3}, DType::F32, world.device);
  EXPECT_TRUE(error_says([&] { pack_mask(x); }, {"pack_mask: the mask is F32, expected U8"}));
  EXPECT_TRUE(error_says(
      [&] {
        pack_mask(bytes_tensor({1, 0, 7}, world.device));
      },
      {"pack_mask: element 2 is 7, expected 0 or 1"}));
  EXPECT_TRUE(error_says(
      [&] {
        unpack_bits(x, bytes_tensor({1, 0}, world.device));
      },
      {"unpack_bits: bits are (2) U8 for 3 elements, expected (1) U8"}));
  EXPECT_TRUE(error_says([&] { to_sparse(x, 1); }, {"to_sparse: 1 values, 2 elements are not 0"}));
  const SparseTensor sparse = to_sparse(x, 2);
  EXPECT_TRUE(error_says([&] { from_sparse(Tensor({9}, DType::F32, world.device), sparse); },
                         {"from_sparse: out is (9) F32, found 1 bytes of bits and values in F32"}));
  const SparseTensor fewer{sparse.bits.share(), Tensor({1}, DType::F32, world.device)};
  EXPECT_TRUE(
      error_says([&] { from_sparse(x, fewer); }, {"from_sparse: 1 values, 2 elements are not 0"}));
}

}  // namespace
}  // namespace aisc
