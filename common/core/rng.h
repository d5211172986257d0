// Random numbers that any rank can compute at any index, in any order: Philox4x32-10 (Salmon et
// al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011). Parameters are drawn by name and
// global index, dropout by step and global position, so every layout of ranks starts from the same
// model.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace aisc {

// The ten-round bijection itself: four random 32-bit words from a counter and a key.
std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter,
                                           std::array<std::uint32_t, 2> key);

// A stream of random values addressed by index. Value i is a pure function of (seed, name, stream,
// i).
class Philox {
 public:
  // `name` says what the numbers are for ("blocks.3.mlp.fc.weight"); `stream` separates steps.
  Philox(std::uint64_t seed, std::string_view name, std::uint64_t stream = 0);

  // The words 4 * block .. 4 * block + 3 of the stream.
  std::array<std::uint32_t, 4> block(std::uint64_t block) const;
  // What block() hands to the bijection: {block low, block high, stream low, stream high} under
  // this key. For loops that compute many blocks at once.
  std::array<std::uint32_t, 2> key() const { return key_; }
  std::array<std::uint32_t, 2> stream() const { return stream_; }
  std::uint32_t bits(std::uint64_t i) const;
  double uniform(std::uint64_t i) const;  // in [0, 1), 32 bits
  double normal(std::uint64_t i) const;   // mean 0, variance 1: Box-Muller on words of one block
  std::uint64_t below(std::uint64_t i, std::uint64_t n) const;  // in [0, n), n < 2^63, 64 bits used

 private:
  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 2> stream_;
};

}  // namespace aisc
