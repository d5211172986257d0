// What BERT is pre-trained on: pairs of texts with hidden words, made of documents while it trains,
// so that it never sees the same masks twice.
#pragma once

#include <cstdint>
#include <memory>

#include "12_encoders/masked_words.h"
#include "12_encoders/sentence_pairs.h"
#include "common/data/batches.h"

namespace aisc {

struct BertSampleOptions {
  std::int64_t context = 128;   // T, the most tokens of a sample
  std::int64_t vocabulary = 0;  // ids are below
  SpecialIds special = {};
  std::uint64_t seed = 1;
  // For validation: so many samples that are always the same, whatever the seed. Their texts A
  // begin at even distances, and every other B follows. 0: any number, which are drawn.
  std::int64_t even = 0;
};

// Batches as pad_masked_pairs() makes them, with K = most_masked(T). The documents are not copied:
// they live longer than this and its copies.
class BertSamples final : public SampleSource {
 public:
  // Throws Error: T < kLeastPairTokens; no vocabulary of words and special tokens, special tokens
  // that are not in it or not five; documents with tokens that are not in it; a negative number of
  // even samples.
  BertSamples(const Documents& documents, const BertSampleOptions& options);

  std::int64_t most_masked() const { return masking_.most; }
  // Sample i: a pure function of the seed and i.
  MaskedPair sample(std::int64_t i) const;
  // Throws Error: a negative index or number, or of even samples one that there is not.
  Batch batch(Device& device, std::int64_t first_sample, std::int64_t count) const override;
  // How many words are masked. It chooses texts, as batch(), but draws no masks.
  double terms(std::int64_t first_sample, std::int64_t count) const override;
  std::unique_ptr<const SampleSource> copy() const override {
    return std::make_unique<BertSamples>(*this);
  }

 private:
  std::uint64_t seed() const;
  PairDraws draws(std::int64_t i) const;
  void require_samples(std::int64_t first, std::int64_t count) const;

  const Documents* documents_;
  BertSampleOptions options_;
  Masking masking_;
};

}  // namespace aisc
