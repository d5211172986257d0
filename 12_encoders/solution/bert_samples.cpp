#include "12_encoders/bert_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "common/core/error.h"
#include "common/core/range.h"

namespace aisc {
namespace {

// For validation: no run begins with it by chance.
constexpr std::uint64_t kEvenSeed = 0x6576656e70616972;

void require_room(std::int64_t T) {
  if (T < kLeastPairTokens)
    fail(fmt::format("sentence pairs: a context of {} tokens, expected {} or more", T,
                     kLeastPairTokens));
}

void require_special(const SpecialIds& special, std::int64_t vocabulary) {
  if (vocabulary <= SpecialIds::kCount)
    fail(fmt::format("masked words: a vocabulary of {}, expected more than the {} special tokens",
                     vocabulary, SpecialIds::kCount));
  const auto ids = special.ascending();
  if (ids.front() < 0 || ids.back() >= vocabulary ||
      std::adjacent_find(ids.begin(), ids.end()) != ids.end())
    fail(fmt::format(
        "masked words: special tokens with ids {}, {}, {}, {} and {}, expected five "
        "different ones below {}",
        special.pad, special.unknown, special.cls, special.sep, special.mask, vocabulary));
}

void require_range(std::int64_t first_sample, std::int64_t count) {
  if (first_sample < 0 || count < 0)
    fail(fmt::format("sentence pairs: {} samples from {}: both must be 0 or more", count,
                     first_sample));
}

}  // namespace

BertSamples::BertSamples(const Documents& documents, const BertSampleOptions& options)
    : documents_(&documents),
      options_(options),
      masking_{.special = options.special,
               .vocabulary = options.vocabulary,
               .most = aisc::most_masked(options.context)} {
  require_room(options.context);
  require_special(options.special, options.vocabulary);
  if (documents.largest_token() >= options.vocabulary)
    fail(
        fmt::format("sentence pairs: documents with token {}, expected tokens below {}, the "
                    "vocabulary",
                    documents.largest_token(), options.vocabulary));
}

MaskedPair BertSamples::sample(std::int64_t i) const {
  return masked(pair_draws(options_.seed, i), options_.seed, i);
}

MaskedPair BertSamples::masked(const PairDraws& draws, std::uint64_t seed, std::int64_t i) const {
  MaskedPair sample = joined(sentence_pair(*documents_, options_.context, draws), options_.special);
  MaskedWords words =
      mask_words(sample.tokens, place_draws(seed, i, std::ssize(sample.tokens)), masking_);
  sample.places = std::move(words.places);
  sample.targets = std::move(words.targets);
  return sample;
}

Batch BertSamples::padded(Device& device, std::span<const MaskedPair> samples) const {
  return pad_masked_pairs(device, samples, options_.context, masking_.most, options_.special.pad);
}

Batch BertSamples::batch(Device& device, std::int64_t first_sample, std::int64_t count) const {
  require_range(first_sample, count);
  std::vector<MaskedPair> samples;
  for (std::int64_t i = 0; i < count; ++i) samples.push_back(sample(first_sample + i));
  return padded(device, samples);
}

double BertSamples::terms(std::int64_t first_sample, std::int64_t count) const {
  require_range(first_sample, count);
  std::int64_t masked = 0;
  for (std::int64_t i = first_sample; i < first_sample + count; ++i) {
    const SentencePair pair =
        sentence_pair(*documents_, options_.context, pair_draws(options_.seed, i));
    const std::int64_t words =
        count_words(pair.a, options_.special) + count_words(pair.b, options_.special);
    masked += masked_count(words, masking_.most);
  }
  return static_cast<double>(masked);
}

Batch BertSamples::even_pairs(std::int64_t count, Device& device) const {
  if (count < 1)
    fail(fmt::format("sentence pairs: {} samples for validation, expected 1 or more", count));
  std::vector<MaskedPair> samples;
  for (std::int64_t i = 0; i < count; ++i) {
    PairDraws draws = pair_draws(kEvenSeed, i);
    draws.start = (static_cast<double>(i) + .5) / static_cast<double>(count);
    draws.label = i % 2 == 0 ? 0 : .5;
    samples.push_back(masked(draws, kEvenSeed, i));
  }
  return padded(device, samples);
}

}  // namespace aisc
