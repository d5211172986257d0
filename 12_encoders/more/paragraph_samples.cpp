#include "12_encoders/more/paragraph_samples.h"

#include <fmt/format.h>

#include <algorithm>

#include "12_encoders/padded_batch.h"
#include "common/core/error.h"
#include "common/core/range.h"

namespace aisc {

std::vector<LabelledTokens> encoded(std::span<const Paragraph> paragraphs,
                                    const Documents::Encode& encode) {
  std::vector<LabelledTokens> texts;
  for (const Paragraph& paragraph : paragraphs)
    texts.push_back({encode(paragraph.text), paragraph.label});
  return texts;
}

Batch labelled_batch(Device& device, std::span<const LabelledTokens> texts, std::int64_t T,
                     const SpecialIds& special) {
  if (T < 3) fail(fmt::format("paragraphs: a context of {} tokens, expected 3 or more", T));
  std::vector<MaskedPair> samples;
  for (const LabelledTokens& text : texts) {
    MaskedPair& sample = samples.emplace_back();
    const std::int64_t n = std::min<std::int64_t>(std::ssize(text.tokens), T - 2);
    sample.tokens.push_back(special.cls);
    sample.tokens.insert(sample.tokens.end(), text.tokens.begin(), text.tokens.begin() + n);
    sample.tokens.push_back(special.sep);
    sample.segments.assign(sample.tokens.size(), 0);
    sample.label = text.label;
  }
  Batch batch = pad_masked_pairs(device, samples, T, 0, special.pad);  // no word is masked
  batch.terms = static_cast<double>(texts.size());
  return batch;
}

ParagraphSamples::ParagraphSamples(std::span<const LabelledTokens> texts, std::int64_t context,
                                   const SpecialIds& special, std::uint64_t seed)
    : texts_(texts), context_(context), special_(special), random_(seed, "paragraphs") {
  if (texts.empty()) fail("paragraphs: there are no texts, expected one or more");
}

std::int64_t ParagraphSamples::text(std::int64_t sample) const {
  return static_cast<std::int64_t>(
      random_.below(static_cast<std::uint64_t>(sample), texts_.size()));
}

Batch ParagraphSamples::batch(Device& device, std::int64_t first_sample, std::int64_t count) const {
  std::vector<LabelledTokens> drawn;
  for (std::int64_t i = 0; i < count; ++i) drawn.push_back(texts_[index(text(first_sample + i))]);
  return labelled_batch(device, drawn, context_, special_);
}

}  // namespace aisc
