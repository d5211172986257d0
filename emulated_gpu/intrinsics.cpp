// The instructions of gpu/intrinsics.h. Fragments are written down as the PTX ISA does, "Matrix
// fragments for mma.m16n8k16 with floating point type" and "ldmatrix".
#include <gpu/intrinsics.h>

#include <algorithm>
#include <cfloat>
#include <cstring>

#include "emulated_gpu/block.h"

namespace aisc::gpu {
namespace {

using emulated_gpu::block_runner;
using emulated_gpu::Needs;

struct MatrixProduct {
  float* d;
  const std::uint32_t* a;
  const std::uint32_t* b;
};

template <float (*value)(std::uint16_t)>
float half_of(std::uint32_t word, int which) {
  return value(static_cast<std::uint16_t>(word >> (16 * which)));
}

// a_i of a lane: i = 0..7, two to a word.
int a_row(int lane, int i) { return lane / 4 + (i % 4 < 2 ? 0 : 8); }
int a_column(int lane, int i) { return lane % 4 * 2 + i % 2 + (i < 4 ? 0 : 8); }
int b_row(int lane, int i) { return lane % 4 * 2 + i % 2 + (i < 2 ? 0 : 8); }
int b_column(int lane) { return lane / 4; }
int d_row(int lane, int i) { return lane / 4 + (i < 2 ? 0 : 8); }
int d_column(int lane, int i) { return lane % 4 * 2 + i % 2; }

template <float (*value)(std::uint16_t)>
void multiply(void* const* mine, std::uint32_t) {
  double a[16][16];
  double b[16][8];
  for (int lane = 0; lane < 32; ++lane) {
    const auto& part = *static_cast<const MatrixProduct*>(mine[lane]);
    for (int i = 0; i < 8; ++i)
      a[a_row(lane, i)][a_column(lane, i)] = half_of<value>(part.a[i / 2], i % 2);
    for (int i = 0; i < 4; ++i)
      b[b_row(lane, i)][b_column(lane)] = half_of<value>(part.b[i / 2], i % 2);
  }
  double product[16][8] = {};
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < 16; ++k)
      for (int column = 0; column < 8; ++column) product[row][column] += a[row][k] * b[k][column];
  for (int lane = 0; lane < 32; ++lane) {
    float* d = static_cast<const MatrixProduct*>(mine[lane])->d;
    for (int i = 0; i < 4; ++i)
      d[i] = static_cast<float>(d[i] + product[d_row(lane, i)][d_column(lane, i)]);
  }
}

struct MatrixLoad {
  std::uint32_t* words;
  const void* row;
};

template <bool transposed>
void load(void* const* mine, std::uint32_t) {
  for (int matrix = 0; matrix < 4; ++matrix) {
    std::uint16_t elements[8][8];
    for (int row = 0; row < 8; ++row)
      std::memcpy(elements[row], static_cast<const MatrixLoad*>(mine[8 * matrix + row])->row, 16);
    for (int lane = 0; lane < 32; ++lane) {
      const int row = lane / 4;
      const int column = 2 * (lane % 4);
      const std::uint32_t low = transposed ? elements[column][row] : elements[row][column];
      const std::uint32_t high = transposed ? elements[column + 1][row] : elements[row][column + 1];
      static_cast<const MatrixLoad*>(mine[lane])->words[matrix] = low | high << 16;
    }
  }
}

void check_aligned_16(const void* address, const char* what) {
  if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0)
    emulated_gpu::fault(cudaErrorMisalignedAddress, what);
}

}  // namespace

// ---- short floating types -----------------------------------------------------------------------

float bf16_value(std::uint16_t bits) { return __uint_as_float(static_cast<unsigned>(bits) << 16); }

std::uint16_t bf16_bits(float value) {
  if (std::isnan(value)) return 0x7fff;
  const unsigned bits = __float_as_uint(value);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float f16_value(std::uint16_t bits) {
  const unsigned size = bits & 0x7fffu;
  // The same bits read as an F32 are a number 2^112 times too small, subnormal or not.
  const float value = size < 0x7c00    ? __uint_as_float(size << 13) * 0x1p112f
                      : size == 0x7c00 ? INFINITY
                                       : NAN;
  return bits & 0x8000 ? -value : value;
}

std::uint16_t f16_bits(float value) {
  if (std::isnan(value)) return 0x7fff;
  const auto sign = static_cast<std::uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const float size = fabsf(value);
  if (size >= 65520.0f) return sign | 0x7c00;  // halfway from the largest number to the next
  // In units of the last place; nearbyint rounds ties to even, and a carry raises the exponent.
  const int exponent = size < 0x1p-14f ? -14 : ilogbf(size);
  const auto units = static_cast<int>(nearbyintf(ldexpf(size, 10 - exponent)));
  return static_cast<std::uint16_t>(sign | (units + ((exponent + 14) << 10)));
}

float fast_exp2(float x) {
  const float y = exp2f(x);
  return y < FLT_MIN ? 0.0f : y;
}

// ---- warps --------------------------------------------------------------------------------------

void mma_bf16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
              const char* file, int line) {
  MatrixProduct mine{d, a, b};
  emulated_gpu::collective("mma_bf16", ~0u, Needs::WholeWarp, multiply<bf16_value>, &mine,
                           {file, line});
}
void mma_f16(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
             const char* file, int line) {
  MatrixProduct mine{d, a, b};
  emulated_gpu::collective("mma_f16", ~0u, Needs::WholeWarp, multiply<f16_value>, &mine,
                           {file, line});
}
void load_matrices(std::uint32_t (&words)[4], const void* shared_row, const char* file, int line) {
  check_aligned_16(shared_row, "load_matrices: a row is not aligned to 16 bytes");
  MatrixLoad mine{words, shared_row};
  emulated_gpu::collective("load_matrices", ~0u, Needs::WholeWarp, load<false>, &mine,
                           {file, line});
}
void load_matrices_transposed(std::uint32_t (&words)[4], const void* shared_row, const char* file,
                              int line) {
  check_aligned_16(shared_row, "load_matrices_transposed: a row is not aligned to 16 bytes");
  MatrixLoad mine{words, shared_row};
  emulated_gpu::collective("load_matrices_transposed", ~0u, Needs::WholeWarp, load<true>, &mine,
                           {file, line});
}

// ---- asynchronous copies ------------------------------------------------------------------------

void copy_async_16(void* shared, const void* global, bool valid) {
  check_aligned_16(shared, "copy_async_16: the shared address is not aligned to 16 bytes");
  check_aligned_16(global, "copy_async_16: the global address is not aligned to 16 bytes");
  auto& thread = block_runner().current();
  thread.copies.push_back({shared, global, valid, thread.copy_group});
}

void copy_async_commit() { ++block_runner().current().copy_group; }

void copy_async_wait_for(int groups) {
  auto& thread = block_runner().current();
  const auto late = std::find_if(thread.copies.begin(), thread.copies.end(), [&](const auto& copy) {
    return copy.group >= thread.copy_group - groups;
  });
  for (auto copy = thread.copies.begin(); copy != late; ++copy) {
    if (copy->valid)
      std::memcpy(copy->shared, copy->global, 16);
    else
      std::memset(copy->shared, 0, 16);
  }
  thread.copies.erase(thread.copies.begin(), late);
}

}  // namespace aisc::gpu
