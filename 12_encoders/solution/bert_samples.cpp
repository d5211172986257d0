#include "12_encoders/bert_samples.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "common/core/error.h"

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

}  // namespace

BertSamples::BertSamples(const Documents& documents, const BertSampleOptions& options)
    : documents_(&documents),
      options_(options),
      masking_{.special = options.special,
               .vocabulary = options.vocabulary,
               .most = aisc::most_masked(options.context)} {
  require_room(options.context);
  require_special(options.special, options.vocabulary);
  if (options.even < 0)
    fail(
        fmt::format("sentence pairs: {} samples for validation, expected 1 or more", options.even));
  if (documents.largest_token() >= options.vocabulary)
    fail(
        fmt::format("sentence pairs: documents with token {}, expected tokens below {}, the "
                    "vocabulary",
                    documents.largest_token(), options.vocabulary));
}

std::uint64_t BertSamples::seed() const { return options_.even > 0 ? kEvenSeed : options_.seed; }

PairDraws BertSamples::draws(std::int64_t i) const {
  PairDraws draws = pair_draws(seed(), i);
  if (options_.even > 0) {
    draws.start = (static_cast<double>(i) + .5) / static_cast<double>(options_.even);
    draws.label = i % 2 == 0 ? 0 : .5;
  }
  return draws;
}

MaskedPair BertSamples::sample(std::int64_t i) const {
  MaskedPair sample =
      joined(sentence_pair(*documents_, options_.context, draws(i)), options_.special);
  MaskedWords words =
      mask_words(sample.tokens, place_draws(seed(), i, std::ssize(sample.tokens)), masking_);
  sample.places = std::move(words.places);
  sample.targets = std::move(words.targets);
  return sample;
}

void BertSamples::require_samples(std::int64_t first, std::int64_t count) const {
  if (first < 0 || count < 0)
    fail(fmt::format("sentence pairs: {} samples from {}: both must be 0 or more", count, first));
  if (options_.even > 0 && first + count > options_.even)
    fail(fmt::format("sentence pairs: samples {} to {}, found {} for validation", first,
                     first + count - 1, options_.even));
}

Batch BertSamples::batch(Device& device, std::int64_t first_sample, std::int64_t count) const {
  require_samples(first_sample, count);
  std::vector<MaskedPair> samples;
  for (std::int64_t i = 0; i < count; ++i) samples.push_back(sample(first_sample + i));
  return pad_masked_pairs(device, samples, options_.context, masking_.most, options_.special.pad);
}

double BertSamples::terms(std::int64_t first_sample, std::int64_t count) const {
  require_samples(first_sample, count);
  std::int64_t masked = 0;
  for (std::int64_t i = first_sample; i < first_sample + count; ++i) {
    const SentencePair pair = sentence_pair(*documents_, options_.context, draws(i));
    const std::int64_t words =
        count_words(pair.a, options_.special) + count_words(pair.b, options_.special);
    masked += masked_count(words, masking_.most);
  }
  return static_cast<double>(masked);
}

}  // namespace aisc
