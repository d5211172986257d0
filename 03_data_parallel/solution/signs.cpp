#include "03_data_parallel/signs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <numeric>

#include "common/core/error.h"

namespace aisc {
namespace {

constexpr std::int64_t kBytes = kSignBlock / 8;  // of a block's bits

// A block of F32 numbers.
std::span<float> block_of(View x, std::int64_t block, std::int64_t used) {
  return {x.data<float>() + block * kSignBlock, static_cast<std::size_t>(used)};
}

// Blocks as they are sent.
struct Packed {
  Packed(std::int64_t blocks, Device& device)
      : bits({blocks * kBytes}, DType::U8, device, Purpose::Workspace),
        scales({blocks}, DType::F32, device, Purpose::Workspace) {}

  std::span<std::uint8_t> bits_of(std::int64_t block) const {
    return {bits.data<std::uint8_t>() + block * kBytes, static_cast<std::size_t>(kBytes)};
  }
  float& scale_of(std::int64_t block) const { return scales.data<float>()[block]; }

  Tensor bits, scales;
};

// f(block) on all threads; throws what one of them threw, which may not leave a parallel loop
// itself.
template <class F>
void each_block(std::int64_t blocks, F f) {
  std::exception_ptr failure;
#pragma omp parallel for
  for (std::int64_t b = 0; b < blocks; ++b) {
    try {
      f(b);
    } catch (...) {
#pragma omp critical
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

// A pass over n numbers.
void charge(Device& device, const char* what, std::int64_t n, double flops, double bytes) {
  device.charge({.operation = what,
                 .flops = flops * static_cast<double>(n),
                 .bytes = bytes * static_cast<double>(n),
                 .dtype = DType::F32});
}

// The sum of |x|: eight sums side by side, which a processor takes at a time.
double sum_of_sizes(std::span<const float> x) {
  std::array<double, 8> sums{};
  std::size_t i = 0;
  // Eight sums that do not wait for each other; afterwards fewer than eight numbers are left.
  for (; i + 8 <= x.size(); i += 8)
    for (std::size_t k = 0; k < 8; ++k) sums[k] += std::abs(x[i + k]);
  for (; i < x.size(); ++i) sums[0] += std::abs(x[i]);
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

// Bit i of `bits`, counted from the lowest of byte 0: whether x[i] >= 0. The last byte's others are
// 0.
void pack_signs(std::span<std::uint8_t> bits, std::span<const float> x) {
  std::fill(bits.begin(), bits.end(), std::uint8_t{0});
  std::size_t i = 0;
  for (; i + 8 <= x.size(); i += 8) {
    unsigned byte = 0;
    for (std::size_t k = 0; k < 8; ++k) byte |= (x[i + k] >= 0 ? 1U : 0U) << k;
    bits[i / 8] = static_cast<std::uint8_t>(byte);
  }
  for (; i < x.size(); ++i)
    if (x[i] >= 0) bits[i / 8] = static_cast<std::uint8_t>(bits[i / 8] | 1U << i % 8);
}

}  // namespace

float compress(std::span<std::uint8_t> bits, std::span<const float> x, std::span<float> error) {
  // LAB 03.7: compress
  // > sum_of_sizes(x) is the sum of |x|, and pack_signs(bits, x) writes the bits: of which numbers?
  // > What is left of each belongs into error.
  for (std::size_t i = 0; i < x.size(); ++i) error[i] += x[i];
  const float scale =
      x.empty() ? 0 : static_cast<float>(sum_of_sizes(error) / static_cast<double>(x.size()));
  pack_signs(bits, error);
  for (float& e : error) e -= e >= 0 ? scale : -scale;
  return scale;
  // END LAB 03.7
}

void decompress(std::span<float> out, std::span<const std::uint8_t> bits, float scale) {
  std::size_t i = 0;
  for (; i + 8 <= out.size(); i += 8) {
    const unsigned byte = bits[i / 8];
    for (std::size_t k = 0; k < 8; ++k) out[i + k] = (byte >> k & 1U) != 0 ? scale : -scale;
  }
  for (; i < out.size(); ++i) out[i] = (bits[i / 8] >> i % 8 & 1U) != 0 ? scale : -scale;
}

void mean_by_signs(const Rank& rank, View x, std::span<const std::int64_t> used,
                   const SignErrors& errors) {
  Communicator& ranks = rank.world;
  const std::int64_t size = ranks.size(), n = x.count();
  if (n % (size * kSignBlock) != 0 || static_cast<std::int64_t>(used.size()) * kSignBlock != n)
    fail(fmt::format("mean_by_signs: {} numbers in {} blocks are no multiple of {} ranks times {}",
                     n, used.size(), size, kSignBlock));
  Device& device = x.device();
  const bool meta = device.kind() == DeviceKind::Meta;
  if (!meta && !device.is_host())
    fail(fmt::format("mean_by_signs: numbers on {}, expected on the host", device.name()));
  const std::int64_t blocks = n / kSignBlock, shard = blocks / size, first = ranks.rank() * shard;
  const auto used_of = [&](std::int64_t block) { return used[static_cast<std::size_t>(block)]; };

  // Each rank is the server of a shard. First signs of this rank's numbers go to all servers ...
  const Packed mine(blocks, device), arrived(blocks, device);
  charge(device, "compress", n, 4, 16.125);
  each_block(meta ? 0 : blocks, [&](std::int64_t b) {
    mine.scale_of(b) = compress(mine.bits_of(b), block_of(x, b, used_of(b)),
                                block_of(errors.worker, b, used_of(b)));
  });
  {
    const auto span = rank.trace.span("communication", "signs to servers");
    Work bits = ranks.all_to_all(mine.bits, arrived.bits);  // comm: n/8 bytes, a shard each
    ranks.all_to_all(mine.scales, arrived.scales).wait();   // comm: 4 bytes a block
    bits.wait();
  }

  // ... then the mean of what all workers sent of the own shard is compressed again, with an error
  // of its own, and goes to all.
  const Packed mean(shard, device), means(blocks, device);
  charge(device, "average", n, 2, 0.125);
  charge(device, "compress", n / size, 4, 16.125);
  each_block(meta ? 0 : shard, [&](std::int64_t b) {
    const auto count = static_cast<std::size_t>(used_of(first + b));
    std::array<float, kSignBlock> one, sum{};
    for (std::int64_t r = 0; r < size; ++r) {
      decompress({one.data(), count}, arrived.bits_of(r * shard + b),
                 arrived.scale_of(r * shard + b));
      for (std::size_t i = 0; i < count; ++i) sum[i] += one[i] / static_cast<float>(size);
    }
    mean.scale_of(b) = compress(mean.bits_of(b), {sum.data(), count},
                                block_of(errors.server, b, static_cast<std::int64_t>(count)));
  });
  {
    const auto span = rank.trace.span("communication", "signs from servers");
    Work bits = ranks.all_gather(mean.bits, means.bits);  // comm: n/8/ranks bytes, a shard's to all
    ranks.all_gather(mean.scales, means.scales).wait();   // comm: 4 bytes a block
    bits.wait();
  }
  charge(device, "decompress", n, 1, 4.125);
  each_block(meta ? 0 : blocks, [&](std::int64_t b) {
    decompress(block_of(x, b, used_of(b)), means.bits_of(b), means.scale_of(b));
  });
}

}  // namespace aisc
