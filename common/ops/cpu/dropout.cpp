// Dropout: the random words of Philox4x32-10, computed for many counters at once.
#include <algorithm>
#include <cmath>

#include "common/ops/cpu/kernels.h"
#include "common/ops/cpu/parallel.h"
#include "common/ops/cpu/vector_math.h"

namespace aisc::cpu {
namespace {

constexpr int kBlocks = 64, kWords = 4 * kBlocks;

// words[4 b + w] = word w of block first + b, the same as Philox::block. One lane is one block.
void philox_blocks(std::uint32_t* words, const Philox& random, std::uint64_t first) {
  std::uint32_t c0[kBlocks], c1[kBlocks], c2[kBlocks], c3[kBlocks];
  const auto stream = random.stream();
  for (int b = 0; b < kBlocks; ++b) {
    const std::uint64_t counter = first + static_cast<std::uint64_t>(b);
    c0[b] = static_cast<std::uint32_t>(counter);
    c1[b] = static_cast<std::uint32_t>(counter >> 32);
    c2[b] = stream[0];
    c3[b] = stream[1];
  }
  std::uint32_t key0 = random.key()[0], key1 = random.key()[1];
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (int b = 0; b < kBlocks; ++b) {
      const std::uint64_t product0 = std::uint64_t{0xD2511F53u} * c0[b];
      const std::uint64_t product1 = std::uint64_t{0xCD9E8D57u} * c2[b];
      c0[b] = static_cast<std::uint32_t>(product1 >> 32) ^ c1[b] ^ key0;
      c1[b] = static_cast<std::uint32_t>(product1);
      c2[b] = static_cast<std::uint32_t>(product0 >> 32) ^ c3[b] ^ key1;
      c3[b] = static_cast<std::uint32_t>(product0);
    }
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  for (int b = 0; b < kBlocks; ++b) {
    words[4 * b] = c0[b];
    words[4 * b + 1] = c1[b];
    words[4 * b + 2] = c2[b];
    words[4 * b + 3] = c3[b];
  }
}

}  // namespace

// Element i is kept if its 32 random bits, as a whole number, are at least rate * 2^32.
void dropout(View y, ConstView x, double rate, const Philox& random, std::uint64_t first_index,
             View mask) {
  const double bound = std::min(std::ceil(rate * 0x1p32), 0x1p32 - 1);
  const auto keep_from = static_cast<std::uint32_t>(bound);
  dispatch(x.dtype(), [&](auto type) {
    using T = decltype(type);
    using S = Accumulator<T>;
    const T* from = x.data<T>();
    T* to = y.data<T>();
    std::uint8_t* is_kept = mask ? mask.data<std::uint8_t>() : nullptr;
    const S factor = static_cast<S>(1 / (1 - rate));
    parallel_elements(x.count(), [=, &random](std::int64_t begin, std::int64_t end) {
      alignas(64) std::uint32_t words[kWords];
      alignas(64) S values[kWords];
      std::int64_t i = begin;
      while (i < end) {
        // The first piece may begin inside a block of four words; the others begin with one.
        const std::uint64_t index = first_index + static_cast<std::uint64_t>(i);
        const auto skipped = static_cast<std::int64_t>(index % 4);
        philox_blocks(words, random, index / 4);
        const std::int64_t n = std::min(end - i, kWords - skipped);
        const std::uint32_t* bits = words + skipped;
        // Two loops: in one, GCC 12 rounds what is kept in a branch of its own, element by element.
#pragma omp simd
        for (std::int64_t k = 0; k < n; ++k) {
          const S kept = factor * widen(from[i + k]);
          values[k] = bits[k] >= keep_from ? kept : S(0);
        }
#pragma omp simd
        for (std::int64_t k = 0; k < n; ++k) to[i + k] = narrow<T>(values[k]);
        for (std::int64_t k = 0; is_kept && k < n; ++k) is_kept[i + k] = bits[k] >= keep_from;
        i += n;
      }
    });
  });
}

void dropout_backward(View dx, ConstView dy, ConstView mask, double rate) {
  dispatch(dy.dtype(), [&](auto type) {
    using T = decltype(type);
    using S = Accumulator<T>;
    const T* from = dy.data<T>();
    const std::uint8_t* is_kept = mask.data<std::uint8_t>();
    T* to = dx.data<T>();
    const S factor = static_cast<S>(1 / (1 - rate));
    parallel_elements(dy.count(), [=](std::int64_t begin, std::int64_t end) {
#pragma omp simd
      for (std::int64_t i = begin; i < end; ++i)
        to[i] = narrow<T>(is_kept[i] ? factor * widen(from[i]) : S(0));
    });
  });
}

}  // namespace aisc::cpu
