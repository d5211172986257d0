// Text cut into words as BERT does it (Devlin et al., 2019; google-research/bert, BasicTokenizer),
// before words are cut into pieces: character by character, as Hugging Face's BertTokenizer
// (`tokenizers`: BertNormalizer, BertPreTokenizer), in this order:
//
//   white space                                          ends a word
//   control, format and private characters, U+FFFD       are left out
//   Chinese ideographs (kanji and hanja, too)            are words of their own
//   accents: characters decomposed (NFD), marks (Mn)     are left out
//   capitals                                             become lower case, one by one
//   punctuation: Unicode's P, all signs of ASCII ($ +)   is a word, each character of it
//
// What `tokenizers` cuts otherwise has come or changed since Unicode 8 (2015), whose tables it has;
// and U+2B820 to U+2B91F, which BERT's own code counts as ideographs and it does not.
#pragma once

#include <functional>
#include <string_view>

namespace aisc {

struct WordRules {
  bool lower_case = true, strip_accents = true, split_ideographs = true;
  bool operator==(const WordRules&) const = default;
};

// Calls `word` with every word of `text`, in order. What it gets lasts until it returns. Bytes that
// are no valid UTF-8 count as U+FFFD.
void for_each_word(std::string_view text, const WordRules& rules,
                   const std::function<void(std::string_view)>& word);

// How many characters a word of for_each_word has.
std::size_t characters_of(std::string_view word);

}  // namespace aisc
