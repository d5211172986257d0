#include "common/core/rng.h"

#include <cmath>
#include <numbers>

namespace aisc {
namespace {

constexpr std::uint32_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
constexpr std::uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;

__extension__ using Uint128 = unsigned __int128;  // GCC and Clang; not ISO C++

constexpr std::uint32_t low(std::uint64_t x) { return static_cast<std::uint32_t>(x); }
constexpr std::uint32_t high(std::uint64_t x) { return static_cast<std::uint32_t>(x >> 32); }

// The finaliser of SplitMix64: every bit of x changes half the bits of the result.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// FNV-1a of the name, mixed before the seed comes in and again after it, so that similar names and
// seeds give unrelated keys.
std::uint64_t hash(std::uint64_t seed, std::string_view name) {
  std::uint64_t h = 0xcbf29ce484222325u;
  for (const char c : name) h = (h ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return mix(mix(h) ^ seed);
}

}  // namespace

std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter,
                                           std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{kMultiplier0} * counter[0];
    const std::uint64_t product1 = std::uint64_t{kMultiplier1} * counter[2];
    counter = {high(product1) ^ counter[1] ^ key[0], low(product1),
               high(product0) ^ counter[3] ^ key[1], low(product0)};
    key = {key[0] + kWeyl0, key[1] + kWeyl1};
  }
  return counter;
}

Philox::Philox(std::uint64_t seed, std::string_view name, std::uint64_t stream) {
  const std::uint64_t h = hash(seed, name);
  key_ = {low(h), high(h)};
  stream_ = {low(stream), high(stream)};
}

std::array<std::uint32_t, 4> Philox::block(std::uint64_t block) const {
  return philox4x32_10({low(block), high(block), stream_[0], stream_[1]}, key_);
}

std::uint32_t Philox::bits(std::uint64_t i) const {
  return block(i / 4)[static_cast<std::size_t>(i % 4)];
}

double Philox::uniform(std::uint64_t i) const { return bits(i) * 0x1p-32; }

// Values 2k and 2k+1 are the cosine and sine of one Box-Muller pair.
double Philox::normal(std::uint64_t i) const {
  const auto words = block(i / 4);
  const std::size_t pair = (i % 4) / 2 * 2;
  const double u = (words[pair] + 1.0) * 0x1p-32;  // in (0, 1]: the logarithm is finite
  const double radius = std::sqrt(-2.0 * std::log(u));
  const double angle = 2.0 * std::numbers::pi * (words[pair + 1] * 0x1p-32);
  return radius * (i % 2 == 0 ? std::cos(angle) : std::sin(angle));
}

std::uint64_t Philox::below(std::uint64_t i, std::uint64_t n) const {
  const auto words = block(i);
  const std::uint64_t wide = (std::uint64_t{words[0]} << 32) | words[1];
  return static_cast<std::uint64_t>((static_cast<Uint128>(wide) * n) >> 64);
}

}  // namespace aisc
