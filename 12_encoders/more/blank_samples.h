// Samples of which there are only the sizes: for devices without numbers, on which steps are
// planned.
#pragma once

#include <cstdint>
#include <memory>

#include "common/data/batches.h"

namespace aisc {

// Pairs that fill T tokens, with K hidden words each, in the sizes of pad_masked_pairs().
class BlankPairs final : public SampleSource {
 public:
  BlankPairs(std::int64_t tokens, std::int64_t masked) : T_(tokens), K_(masked) {}

  Batch batch(Device& device, std::int64_t first, std::int64_t count) const override;
  double terms(std::int64_t first, std::int64_t count) const override;
  std::unique_ptr<const SampleSource> copy() const override {
    return std::make_unique<BlankPairs>(*this);
  }

 private:
  std::int64_t T_, K_;
};

// Texts and translations that fill S and T tokens, in the sizes of pad_pairs().
class BlankTranslations final : public SampleSource {
 public:
  BlankTranslations(std::int64_t source, std::int64_t target) : S_(source), T_(target) {}

  Batch batch(Device& device, std::int64_t first, std::int64_t count) const override;
  double terms(std::int64_t first, std::int64_t count) const override;
  std::unique_ptr<const SampleSource> copy() const override {
    return std::make_unique<BlankTranslations>(*this);
  }

 private:
  std::int64_t S_, T_;
};

}  // namespace aisc
