// Documents in which every token says where it is from, and words of a text as tokens.
#pragma once

#include <cctype>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "formats/sentences.h"

namespace aisc {

// Of a sentence of n tokens from `first` on: "first n".
inline std::string counted_sentence(std::int32_t first, int n) {
  return std::to_string(first) + " " + std::to_string(n);
}

// The tokens of such a sentence: first, first + 1, ...
inline std::vector<std::int32_t> counted_tokens(std::string_view sentence) {
  const std::size_t space = sentence.find(' ');
  const int first = std::stoi(std::string(sentence.substr(0, space)));
  const int n = std::stoi(std::string(sentence.substr(space + 1)));
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back(first + i);
  return tokens;
}

// Two documents. The first has two stretches, with sentences of 4, 3, 5 and 6 tokens from 100 on,
// and of 2 and 2 from 200 on; the second one with 3, 7 and 4 tokens from 300 on.
inline std::vector<Document> two_documents() {
  return {{{counted_sentence(100, 4), counted_sentence(104, 3), counted_sentence(107, 5),
            counted_sentence(112, 6)},
           {counted_sentence(200, 2), counted_sentence(202, 2)}},
          {{counted_sentence(300, 3), counted_sentence(303, 7), counted_sentence(310, 4)}}};
}

// Gives each word of a text, in lower case, and each other sign the next free id from 5 on.
class PlainWordIds {
 public:
  std::vector<std::int32_t> operator()(std::string_view text) {
    std::vector<std::int32_t> ids;
    for (std::size_t i = 0; i < text.size();) {
      std::string word;
      while (i < text.size() && std::isalnum(static_cast<unsigned char>(text[i])))
        word += static_cast<char>(std::tolower(static_cast<unsigned char>(text[i++])));
      if (word.empty()) word = text[i++];
      if (word != " " && word != "\n") ids.push_back(id_of(word));
    }
    return ids;
  }
  std::int64_t vocabulary() const { return 5 + static_cast<std::int64_t>(ids_.size()); }

 private:
  std::int32_t id_of(const std::string& word) {
    return ids_.try_emplace(word, static_cast<std::int32_t>(vocabulary())).first->second;
  }

  std::map<std::string, std::int32_t> ids_;
};

}  // namespace aisc
