// How often a text has each of its words: all that learning merges asks of it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace aisc {

struct WordCount {
  std::string_view word;  // in a text, which outlives it
  std::int64_t count = 0;
};

// The distinct words of `text` (formats/pretokenize.h) in the order in which they first occur, the
// same on every machine.
std::vector<WordCount> count_words(std::string_view text);

// The same of a text whose parts, cut where is_border() holds, have these: counts add up, and a
// word first occurs in the first part that has it. So order and counts are the whole text's.
std::vector<WordCount> merge_counts(std::span<const std::vector<WordCount>> parts);

}  // namespace aisc
