// The instructions of gpu/intrinsics.h. Where an element of a matrix lies is written down the other
// way round than in the emulation: not "what does this lane hold", but "who holds this element".
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "emulated_gpu/gpu.h"

namespace aisc::emulated_gpu {
namespace {

// ---- short floating types -----------------------------------------------------------------------

TEST(ShortFloats, EveryF16IsReadAndWrittenBack) {
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const float value = gpu::f16_value(static_cast<std::uint16_t>(bits));
    if (std::isnan(value))
      EXPECT_EQ(gpu::f16_bits(value), 0x7fff);
    else
      ASSERT_EQ(gpu::f16_bits(value), bits);
  }
  EXPECT_EQ(gpu::f16_value(0x3c01), 1.0f + 0x1p-10f);
  EXPECT_EQ(gpu::f16_value(0x0001), 0x1p-24f);
  EXPECT_EQ(gpu::f16_value(0x7bff), 65504.0f);
  EXPECT_EQ(gpu::f16_value(0xfc00), -std::numeric_limits<float>::infinity());
}

TEST(ShortFloats, TiesGoToEven) {
  EXPECT_EQ(gpu::f16_bits(1.0f + 0x1p-11f), 0x3c00);
  EXPECT_EQ(gpu::f16_bits(1.0f + 0x3p-11f), 0x3c02);
  EXPECT_EQ(gpu::f16_bits(0x1p-25f), 0x0000);
  EXPECT_EQ(gpu::f16_bits(0x1.8p-24f), 0x0002);
  EXPECT_EQ(gpu::f16_bits(65519.0f), 0x7bff);
  EXPECT_EQ(gpu::f16_bits(-65520.0f), 0xfc00);
  EXPECT_EQ(gpu::bf16_bits(1.0f + 0x1p-8f), 0x3f80);
  EXPECT_EQ(gpu::bf16_bits(1.0f + 0x3p-8f), 0x3f82);
  EXPECT_EQ(gpu::bf16_bits(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_EQ(gpu::bf16_bits(std::nanf("")), 0x7fff);
  EXPECT_EQ(gpu::pack_bf16(1.0f, 2.0f), 0x40003f80u);
  EXPECT_EQ(gpu::pack_f16(1.0f, 2.0f), 0x40003c00u);
}

TEST(ShortFloats, FastExponentialFlushesSubnormals) {
  EXPECT_EQ(gpu::fast_exp2(10.0f), 1024.0f);
  EXPECT_EQ(gpu::fast_exp2(-127.0f), 0.0f);
  EXPECT_EQ(gpu::fast_exp2(-std::numeric_limits<float>::infinity()), 0.0f);
}

// ---- tensor cores -------------------------------------------------------------------------------

// d (16, 8) += a (16, 16) b (16, 8); `words` holds each lane's registers of a, then of b.
template <bool is_bf16>
__global__ void multiply_fragments(const std::uint32_t* words, float* d) {
  const unsigned lane = threadIdx.x;
  std::uint32_t a[4];
  std::uint32_t b[2];
  float mine[4];
  for (unsigned i = 0; i < 4; ++i) a[i] = words[lane * 6 + i];
  for (unsigned i = 0; i < 2; ++i) b[i] = words[lane * 6 + 4 + i];
  for (unsigned i = 0; i < 4; ++i) mine[i] = d[lane * 4 + i];
  if (is_bf16)
    gpu::mma_bf16(mine, a, b);
  else
    gpu::mma_f16(mine, a, b);
  for (unsigned i = 0; i < 4; ++i) d[lane * 4 + i] = mine[i];
}

// The elements of a register are two neighbours; it lies in the lane of its row (modulo 8) and
// pair.
std::size_t place_in_a(std::size_t row, std::size_t column) {
  const std::size_t lane = row % 8 * 4 + column % 8 / 2;
  const std::size_t word = row / 8 + 2 * (column / 8);
  return (lane * 6 + word) * 2 + column % 2;
}
std::size_t place_in_b(std::size_t row, std::size_t column) {
  const std::size_t lane = column * 4 + row % 8 / 2;
  return (lane * 6 + 4 + row / 8) * 2 + row % 2;
}
std::size_t place_in_d(std::size_t row, std::size_t column) {
  return (row % 8 * 4 + column / 2) * 4 + row / 8 * 2 + column % 2;
}

template <bool is_bf16>
void check_product() {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> small(-8, 8);
  const auto bits = [](int value) {
    const auto x = static_cast<float>(value);
    return is_bf16 ? gpu::bf16_bits(x) : gpu::f16_bits(x);
  };
  int a[16][16];
  int b[16][8];
  std::vector<std::uint16_t> halves(32 * 6 * 2);
  std::vector<float> d(32 * 4);
  for (std::size_t i = 0; i < 16; ++i)
    for (std::size_t k = 0; k < 16; ++k) halves[place_in_a(i, k)] = bits(a[i][k] = small(random));
  for (std::size_t k = 0; k < 16; ++k)
    for (std::size_t j = 0; j < 8; ++j) halves[place_in_b(k, j)] = bits(b[k][j] = small(random));
  for (std::size_t i = 0; i < 16; ++i)
    for (std::size_t j = 0; j < 8; ++j) d[place_in_d(i, j)] = static_cast<float>(i * 100 + j);
  std::vector<std::uint32_t> words(32 * 6);
  std::memcpy(words.data(), halves.data(), words.size() * 4);
  Array<std::uint32_t> fragments(words);
  Array<float> out(d);
  ASSERT_EQ(run(1, 32, 0, multiply_fragments<is_bf16>, fragments.data(), out.data()), cudaSuccess);
  d = out.values();
  for (std::size_t i = 0; i < 16; ++i)
    for (std::size_t j = 0; j < 8; ++j) {
      int sum = static_cast<int>(i * 100 + j);
      for (std::size_t k = 0; k < 16; ++k) sum += a[i][k] * b[k][j];
      EXPECT_EQ(d[place_in_d(i, j)], static_cast<float>(sum)) << i << ", " << j;
    }
}

TEST(TensorCores, ProductOfFragmentsIsTheProduct) {
  check_product<true>();
  check_product<false>();
}

// Four 8 x 8 matrices, each row at an address of its own: rows in reverse, with a gap between.
__global__ void load_fragments(const std::uint16_t* in, std::uint32_t* out,
                               std::uint32_t* transposed) {
  auto* shared = gpu::dynamic_shared<std::uint16_t>();
  for (unsigned i = threadIdx.x; i < 32 * 8; i += 32) shared[(31 - i / 8) * 24 + i % 8] = in[i];
  __syncthreads();
  std::uint32_t words[4];
  gpu::load_matrices(words, shared + (31 - threadIdx.x) * 24);
  for (unsigned i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = words[i];
  gpu::load_matrices_transposed(words, shared + (31 - threadIdx.x) * 24);
  for (unsigned i = 0; i < 4; ++i) transposed[threadIdx.x * 4 + i] = words[i];
}

TEST(TensorCores, LoadedMatricesLieAsDocumented) {
  std::vector<std::uint16_t> elements(4 * 8 * 8);  // 256 m + 16 row + column
  for (std::size_t m = 0; m < 4; ++m)
    for (std::size_t row = 0; row < 8; ++row)
      for (std::size_t column = 0; column < 8; ++column)
        elements[(m * 8 + row) * 8 + column] =
            static_cast<std::uint16_t>(256 * m + 16 * row + column);
  Array<std::uint16_t> in(elements);
  Array<std::uint32_t> out(32 * 4);
  Array<std::uint32_t> transposed(32 * 4);
  ASSERT_EQ(run(1, 32, 32 * 48, load_fragments, in.data(), out.data(), transposed.data()),
            cudaSuccess);
  const auto words = out.values();
  const auto turned = transposed.values();
  for (std::size_t m = 0; m < 4; ++m)
    for (std::size_t row = 0; row < 8; ++row)
      for (std::size_t column = 0; column < 8; ++column) {
        const std::size_t lane = row * 4 + column / 2;
        const auto half = [&](std::uint32_t word) { return word >> 16 * (column % 2) & 0xffff; };
        EXPECT_EQ(half(words[lane * 4 + m]), 256 * m + 16 * row + column);
        EXPECT_EQ(half(turned[lane * 4 + m]), 256 * m + 16 * column + row);
      }
}

// ---- asynchronous copies ------------------------------------------------------------------------

// Two groups of 16 bytes and one without a commit. out: what is there after waits for all but one
// group, for all groups, and zeros in place of what is not valid.
__global__ void copy_late(const int* in, int* out) {
  auto* shared = gpu::dynamic_shared<int>();
  gpu::copy_async_16(shared, in);
  gpu::copy_async_commit();
  gpu::copy_async_16(shared + 4, in + 4, false);
  gpu::copy_async_16(shared + 8, in + 8);
  gpu::copy_async_commit();
  gpu::copy_async_16(shared + 12, in + 12);
  const auto look = [&](int* to) {
    for (int i = 0; i < 4; ++i) to[i] = shared[4 * i];
  };
  look(out);
  gpu::copy_async_wait<1>();
  look(out + 4);
  gpu::copy_async_wait<0>();
  look(out + 8);
}

TEST(AsynchronousCopies, ArriveNotBeforeTheyAreWaitedFor) {
  std::vector<int> values(16);
  for (int i = 0; i < 16; ++i) values[static_cast<std::size_t>(i)] = i + 1;
  Array<int> in(values);
  Array<int> out(12);
  ASSERT_EQ(run(1, 1, 64, copy_late, in.data(), out.data()), cudaSuccess);
  EXPECT_EQ(out.values(), (std::vector<int>{-1, -1, -1, -1, 1, -1, -1, -1, 1, 0, 9, -1}));
}

}  // namespace
}  // namespace aisc::emulated_gpu
