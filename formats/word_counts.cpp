#include "formats/word_counts.h"

#include <unordered_map>

#include "formats/pretokenize.h"

namespace aisc {
namespace {

class Counter {
 public:
  void add(std::string_view word, std::int64_t count) {
    const auto [place, is_new] = places_.try_emplace(word, words_.size());
    if (is_new) words_.push_back({word, 0});
    words_[place->second].count += count;
  }
  std::vector<WordCount> take() { return std::move(words_); }

 private:
  std::vector<WordCount> words_;
  std::unordered_map<std::string_view, std::size_t> places_;  // in words_
};

}  // namespace

std::vector<WordCount> count_words(std::string_view text) {
  Counter counter;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, first_word(text));
    text.remove_prefix(word.size());
    counter.add(word, 1);
  }
  return counter.take();
}

std::vector<WordCount> merge_counts(std::span<const std::vector<WordCount>> parts) {
  Counter counter;
  for (const std::vector<WordCount>& part : parts)
    for (const auto& [word, count] : part) counter.add(word, count);
  return counter.take();
}

}  // namespace aisc
