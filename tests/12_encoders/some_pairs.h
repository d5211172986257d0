// Samples for BERT that are drawn by counter: pairs of random words, of lengths that differ, with
// masked words, and of no meaning.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "common/data/batches.h"
#include "tests/support/tensors.h"

namespace aisc {

class SomePairs final : public SampleSource {
 public:
  SomePairs(std::int64_t tokens, std::int64_t vocabulary, std::int64_t predictions,
            std::uint64_t seed = 1)
      : T_(tokens), V_(vocabulary), K_(predictions), seed_(seed) {}

  Batch batch(Device& device, std::int64_t first, std::int64_t count) const override {
    std::vector<std::int32_t> tokens, segments, lengths, picked, labels;  // (B, T) or (B) each
    std::vector<std::int32_t> places, ids;                                // (B, K)
    for (std::int64_t b = 0; b < count; ++b) {
      const Sample sample = sample_of(first + b);
      tokens.insert(tokens.end(), sample.tokens.begin(), sample.tokens.end());
      for (std::int64_t t = 0; t < T_; ++t)
        segments.push_back(t >= sample.second && t < sample.length ? 1 : 0);
      lengths.push_back(static_cast<std::int32_t>(sample.length));
      picked.push_back(static_cast<std::int32_t>(b * T_));
      labels.push_back(sample.label);
      for (std::int64_t k = 0; k < K_; ++k) {
        const bool is = k < std::ssize(sample.places);
        places.push_back(static_cast<std::int32_t>(
            is ? b * T_ + sample.places[static_cast<std::size_t>(k)] : count * T_));
        ids.push_back(is ? static_cast<std::int32_t>((sample.label + 3 * k + first + b) % V_) : -1);
      }
    }
    picked.insert(picked.end(), places.begin(), places.end());
    labels.insert(labels.end(), ids.begin(), ids.end());
    return {.tokens = ids_tensor(tokens, device).reshaped({count, T_}),
            .targets = ids_tensor(labels, device),
            .terms = terms(first, count),
            .lengths = ids_tensor(lengths, device),
            .segments = ids_tensor(segments, device).reshaped({count, T_}),
            .picked = ids_tensor(picked, device)};
  }
  double terms(std::int64_t first, std::int64_t count) const override {
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i)
      sum += static_cast<double>(sample_of(first + i).places.size());
    return sum;
  }
  std::unique_ptr<const SampleSource> copy() const override {
    return std::make_unique<SomePairs>(*this);
  }

 private:
  struct Sample {
    std::vector<std::int32_t> tokens;     // (T), 0 behind the length
    std::int64_t length = 0, second = 0;  // where the second text begins
    std::vector<std::int64_t> places;     // of masked words: 0 to K, of real tokens
    std::int32_t label = 0;
  };
  Sample sample_of(std::int64_t i) const {
    const Philox random(seed_, "pairs", static_cast<std::uint64_t>(i));
    const auto below = [&](std::uint64_t at, std::int64_t n) {
      return static_cast<std::int64_t>(random.below(at, static_cast<std::uint64_t>(n)));
    };
    Sample sample;
    sample.length = i % 5 == 3 ? T_ : 3 + below(0, T_ - 2);  // 3 to T
    sample.second = 1 + below(1, sample.length - 1);
    sample.label = static_cast<std::int32_t>(below(2, 2));
    const std::int64_t masked = std::min(below(3, K_ + 1), sample.length - 1);
    for (std::int64_t t = 1; t < sample.length && std::ssize(sample.places) < masked; ++t)
      if (below(1000 + static_cast<std::uint64_t>(t), sample.length - t) <
          masked - std::ssize(sample.places))
        sample.places.push_back(t);
    for (std::int64_t t = 0; t < T_; ++t)
      sample.tokens.push_back(
          t < sample.length
              ? static_cast<std::int32_t>(1 + below(2000 + static_cast<std::uint64_t>(t), V_ - 1))
              : 0);
    return sample;
  }

  std::int64_t T_, V_, K_;
  std::uint64_t seed_;
};

}  // namespace aisc
