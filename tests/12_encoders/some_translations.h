// Samples for an encoder-decoder that are drawn by counter: sources and translations of random
// words, of lengths that differ, and of no meaning. And a model of sizes that divide by nothing.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "12_encoders/encoder_decoder.h"
#include "12_encoders/padded_batch.h"
#include "common/core/rng.h"
#include "common/data/batches.h"
#include "tests/nn/gpt_fixture.h"

namespace aisc {

class SomeTranslations final : public SampleSource {
 public:
  // Sources of 1 to S tokens, translations of 0 to T - 1; ids 0, 1 and 2 are begin, end and pad.
  SomeTranslations(std::int64_t S, std::int64_t T, std::int64_t vocabulary, std::uint64_t seed = 1)
      : S_(S), T_(T), V_(vocabulary), seed_(seed) {}

  static PairIds ids() { return {.begin = 0, .end = 1, .pad = 2}; }
  std::vector<std::int32_t> source(std::int64_t i) const {
    return text("source", i, i % 5 == 3 ? S_ : 1 + below("length", i, S_));
  }
  std::vector<std::int32_t> translation(std::int64_t i) const {
    return text("translation", i, i % 4 == 2 ? T_ - 1 : below("translated length", i, T_));
  }
  Batch batch(Device& device, std::int64_t first, std::int64_t count) const override {
    std::vector<std::vector<std::int32_t>> sources, translations;
    for (std::int64_t i = first; i < first + count; ++i) {
      sources.push_back(source(i));
      translations.push_back(translation(i));
    }
    return pad_pairs(device, sources, translations, ids(), S_, T_);
  }
  double terms(std::int64_t first, std::int64_t count) const override {
    double sum = 0;
    for (std::int64_t i = first; i < first + count; ++i)
      sum += static_cast<double>(translation(i).size() + 1);
    return sum;
  }
  std::unique_ptr<const SampleSource> copy() const override {
    return std::make_unique<SomeTranslations>(*this);
  }

 private:
  std::int64_t below(const char* name, std::int64_t i, std::int64_t n) const {
    const Philox random(seed_, name);
    return static_cast<std::int64_t>(
        random.below(static_cast<std::uint64_t>(i), static_cast<std::uint64_t>(n)));
  }
  std::vector<std::int32_t> text(const char* name, std::int64_t i, std::int64_t length) const {
    const Philox random(seed_, name, static_cast<std::uint64_t>(i));
    std::vector<std::int32_t> ids;
    for (std::int64_t t = 0; t < length; ++t)
      ids.push_back(static_cast<std::int32_t>(
          3 + random.below(static_cast<std::uint64_t>(t), static_cast<std::uint64_t>(V_ - 3))));
    return ids;
  }

  std::int64_t S_, T_, V_;
  std::uint64_t seed_;
};

inline constexpr std::int64_t kSomeDecoderTokens = 7;

// Two encoder blocks and two decoder blocks, of 3 heads of 2 columns; 11 tokens of a source.
inline GptConfig odd_translator(DType dtype = DType::F64, double dropout = 0) {
  GptConfig config = odd_config(dtype, dropout);
  config.layers = 4;
  config.encoder_blocks = 2;
  config.width = 6;
  return config;
}
inline GptParts some_encoder_decoder(double smoothing = 0.1) {
  return encoder_decoder_parts({.decoder_tokens = kSomeDecoderTokens, .smoothing = smoothing},
                               gpt2_parts(), nullptr);
}

}  // namespace aisc
