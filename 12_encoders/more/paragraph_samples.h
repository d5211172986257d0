// Paragraphs as batches: one label of each text, which is read at its [CLS].
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "12_encoders/more/paragraphs.h"
#include "12_encoders/special_ids.h"
#include "common/data/batches.h"

namespace aisc {

// A text in tokens, without special ones, and what it is.
struct LabelledTokens {
  std::vector<std::int32_t> tokens;
  std::int32_t label = 0;
};
std::vector<LabelledTokens> encoded(std::span<const Paragraph> paragraphs,
                                    const Documents::Encode& encode);

// [CLS] text [SEP] of B texts, as BERT reads them: tokens (B, T), of which a text has at most T - 2
// and the rest is padding, lengths (B), segments (B, T), all 0, picked (B), where each [CLS] is,
// targets (B), the labels; the loss is a mean over B terms. Throws Error for T < 3.
Batch labelled_batch(Device& device, std::span<const LabelledTokens> texts, std::int64_t T,
                     const SpecialIds& special);

// Texts drawn at random, with replacement. They are not copied: they live longer than this.
class ParagraphSamples final : public SampleSource {
 public:
  // Throws Error: no texts.
  ParagraphSamples(std::span<const LabelledTokens> texts, std::int64_t context,
                   const SpecialIds& special, std::uint64_t seed);

  // Which text sample i is: a pure function of the seed and i, all are as likely.
  std::int64_t text(std::int64_t sample) const;
  Batch batch(Device& device, std::int64_t first_sample, std::int64_t count) const override;
  double terms(std::int64_t /*first_sample*/, std::int64_t count) const override {
    return static_cast<double>(count);
  }
  std::unique_ptr<const SampleSource> copy() const override {
    return std::make_unique<ParagraphSamples>(*this);
  }

 private:
  std::span<const LabelledTokens> texts_;
  std::int64_t context_;
  SpecialIds special_;
  Philox random_;
};

}  // namespace aisc
