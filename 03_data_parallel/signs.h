// Numbers as their signs and a few scales: a bit each, with error feedback (Seide et al., "1-bit
// stochastic gradient descent", 2014; Karimireddy et al., "Error feedback fixes SignSGD", 2019),
// and the sum over ranks that sends nothing else.
#pragma once

#include <cstdint>
#include <span>

#include "common/comm/rank.h"
#include "common/core/tensor.h"

namespace aisc {

// Numbers are compressed in blocks of up to so many, each with a scale of its own.
inline constexpr std::int64_t kSignBlock = 1024;

// Compresses a block, x + error, and returns its scale: the mean of |x + error|, which makes the
// squared error least (0 of no numbers). Bit i of `bits`, counted from the lowest of byte 0,
// becomes 1 where number i is >= 0; `error` becomes what is lost: (x + error) - decompressed. x,
// error (n), bits (n / 8, rounded up)
float compress(std::span<std::uint8_t> bits, std::span<const float> x, std::span<float> error);
// out[i] = +scale where its bit is 1, else -scale.  out (n)
void decompress(std::span<float> out, std::span<const std::uint8_t> bits, float scale);

// What a rank remembers between calls: its errors as a worker, for all numbers, and as the server
// of its shard.
struct SignErrors {
  Tensor worker;  // (n) F32
  Tensor server;  // (n / ranks) F32
};

// The mean over ranks of x (n) F32, up to what compression leaves for the next time (Tang et al.,
// "1-bit Adam", 2021, section 5). x is in blocks of kSignBlock, of which block b uses the first
// used[b]: others are not touched. Each rank is the server of one of n / ranks numbers: workers
// compress and send each server its shard (all_to_all), which averages them, compresses the mean
// and sends it to all (all_gather). n must be a multiple of ranks * kSignBlock. Bytes that a rank
// sends: 2 (ranks - 1) / ranks * (n / 8 + 4 n / kSignBlock), a sixteenth of BF16's and a little.
//
// x lies on the host, or on a device without numbers, where all is counted and nothing computed;
// elsewhere it throws Error.
void mean_by_signs(const Rank& rank, View x, std::span<const std::int64_t> used,
                   const SignErrors& errors);

}  // namespace aisc
