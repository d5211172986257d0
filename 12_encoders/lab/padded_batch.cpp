// Yours to write; from 12_encoders/solution/padded_batch.cpp (stub 15a59b80432a).
// Write between the lines LAB and END LAB; they tell which exercise is which, and must stay.
#include "12_encoders/padded_batch.h"

#include <fmt/format.h>

#include "common/core/error.h"
#include "common/core/range.h"

namespace aisc {
namespace {

using Ids = std::vector<std::int32_t>;

Tensor padded_tensor(Device& device, const Ids& ids, const Shape& shape) {
  CpuDevice host;
  Tensor x(shape, DType::I32, device);
  device.copy(x, ConstView(ids.data(), shape, DType::I32, host));
  return x;
}

void require_length(const char* what, std::int64_t sample, std::int64_t found, std::int64_t least,
                    std::int64_t most) {
  if (found < least || found > most)
    fail(fmt::format("padding: {} of sample {}: found {}, expected {} to {}", what, sample, found,
                     least, most));
}

void require_pair(const MaskedPair& pair, std::int64_t sample, std::int64_t T, std::int64_t K) {
  const std::int64_t n = std::ssize(pair.tokens), m = std::ssize(pair.places);
  require_length("tokens", sample, n, 1, T);
  require_length("segments", sample, std::ssize(pair.segments), n, n);
  require_length("masked words", sample, m, 0, K);
  require_length("targets", sample, std::ssize(pair.targets), m, m);
  for (const std::int32_t place : pair.places)
    require_length("a masked word's place", sample, place, 0, n - 1);
}

}  // namespace

Batch pad_masked_pairs(Device& device, std::span<const MaskedPair> samples, std::int64_t T,
                       std::int64_t K, std::int32_t pad) {
  const std::int64_t B = std::ssize(samples);
  for (std::int64_t b = 0; b < B; ++b) require_pair(samples[index(b)], b, T, K);
  Ids tokens(index(B * T)), lengths(index(B)), segments(index(B * T));
  Ids picked(index(B + B * K)), targets(index(B + B * K));
  double terms = 0;
  // LAB 12.2: padding
  // Fill the five vectors from samples[0 .. B), each in the order that padded_batch.h says, and
  // count the masked words. All is 0 so far. At which index does sample b's first masked word
  // stand in `picked`? And what stands there where a sample has fewer than K?
  throw NotImplemented("lab 12.2: padding", __FILE__, __LINE__);
  // END LAB 12.2
  return {.tokens = padded_tensor(device, tokens, {B, T}),
          .targets = padded_tensor(device, targets, {B + B * K}),
          .terms = terms,
          .lengths = padded_tensor(device, lengths, {B}),
          .segments = padded_tensor(device, segments, {B, T}),
          .picked = padded_tensor(device, picked, {B + B * K})};
}

Batch pad_pairs(Device& device, std::span<const Ids> sources, std::span<const Ids> translations,
                const PairIds& ids, std::int64_t S, std::int64_t T) {
  const std::int64_t B = std::ssize(sources);
  if (std::ssize(translations) != B)
    fail(fmt::format("padding: {} translations, expected {}, one of each source",
                     translations.size(), B));
  for (std::int64_t b = 0; b < B; ++b) {
    require_length("source tokens", b, std::ssize(sources[index(b)]), 1, S);
    require_length("translated tokens", b, std::ssize(translations[index(b)]), 0, T - 1);
  }
  Ids tokens(index(B * S)), lengths(index(B)), decoder(index(B * T)), targets(index(B * T));
  double terms = 0;
  // LAB 12.2: padding
  // The same for sources and their translations. The decoder reads a translation one place later
  // than it has to say it: what does it read first, and what has it to say last?
  throw NotImplemented("lab 12.2: padding", __FILE__, __LINE__);
  // END LAB 12.2
  return {.tokens = padded_tensor(device, tokens, {B, S}),
          .targets = padded_tensor(device, targets, {B, T}),
          .terms = terms,
          .lengths = padded_tensor(device, lengths, {B}),
          .decoder = padded_tensor(device, decoder, {B, T})};
}

}  // namespace aisc
