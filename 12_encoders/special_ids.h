// The tokens that are no words.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace aisc {

// Their ids in a vocabulary; they differ.
struct SpecialIds {
  std::int32_t pad = 0;      // [PAD]: fills a sample up
  std::int32_t unknown = 1;  // [UNK]: a word that the vocabulary cannot say
  std::int32_t cls = 2;   // [CLS]: begins a sample; what is said of the whole sample is read here
  std::int32_t sep = 3;   // [SEP]: ends a text
  std::int32_t mask = 4;  // [MASK]: hides a word

  static constexpr std::int64_t kCount = 5;

  std::array<std::int32_t, kCount> ascending() const {
    std::array<std::int32_t, kCount> all{pad, unknown, cls, sep, mask};
    std::sort(all.begin(), all.end());
    return all;
  }
  bool contains(std::int32_t id) const {
    return id == pad || id == unknown || id == cls || id == sep || id == mask;
  }
};

}  // namespace aisc
