// Learns pieces by merging, as byte-pair encoding does (Sennrich et al., 2016, algorithm 1), where
// a word's symbols are its characters, with "##" in front of all but the first: so Hugging Face's
// WordPieceTrainer. (The original, Schuster and Nakajima, 2012, merges by likelihood instead.)
//
// Every distinct word stands once, with the number of times that the text has it. Each pair of
// neighbours knows its count and the words that have had it, so a merge touches these words alone.
// Two merges can make one piece, "a" + "##bc" and "ab" + "##c": then the counts of its pairs grow
// again, and every count that a merge has changed goes on the heap anew. An entry that is not the
// pair's count of now is out of date.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <queue>
#include <set>
#include <unordered_map>

#include "common/core/error.h"
#include "formats/wordpiece.h"

namespace aisc {
namespace {

constexpr std::array<std::string_view, 5> kSpecialTokens{"[PAD]", "[UNK]", "[CLS]", "[SEP]",
                                                         "[MASK]"};

struct CountedWord {
  std::vector<std::int32_t> symbols;
  std::int64_t count = 0;  // in the text
};

struct PairUses {
  std::int64_t count = 0;          // in the text
  std::vector<std::size_t> words;  // that have it or have had it, some more than once
};

struct PieceCandidate {
  std::int64_t count;
  std::uint64_t pair;
  bool operator<(
      const PieceCandidate& other) const {  // comes later: a heap has the greatest on top
    return count != other.count ? count < other.count : pair > other.pair;
  }
};

constexpr std::uint64_t piece_pair(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

// The first character of what is left of a word.
std::string_view first_character(std::string_view rest) {
  std::size_t bytes = 1;
  while (bytes < rest.size() && (static_cast<unsigned char>(rest[bytes]) & 0xC0) == 0x80) ++bytes;
  return rest.substr(0, bytes);
}

class PieceTrainer {
 public:
  PieceTrainer(std::string_view text, const WordRules& rules);
  // The next merge; false: no word has two symbols left.
  bool merge();
  std::vector<std::string>& tokens() { return tokens_; }

 private:
  void add_alphabet(const std::vector<std::string>& texts);
  std::int32_t add(const std::string& token);
  void count_pairs(std::size_t word, std::int64_t sign);
  void queue_touched();
  std::optional<std::uint64_t> most_frequent();

  std::vector<std::string> tokens_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::vector<CountedWord> words_;
  std::unordered_map<std::uint64_t, PairUses> pairs_;
  std::set<std::uint64_t> touched_;  // pairs whose counts have changed since they were queued
  std::priority_queue<PieceCandidate> heap_;
};

PieceTrainer::PieceTrainer(std::string_view text, const WordRules& rules) {
  std::unordered_map<std::string, std::size_t> places;
  std::vector<std::string> texts;  // of words_, in the order of the text
  for_each_word(text, rules, [&](std::string_view word) {
    if (characters_of(word) > WordPiece::kLongestWord) return;  // it will be [UNK]
    const auto [place, is_new] = places.emplace(word, words_.size());
    if (is_new) {
      words_.emplace_back();
      texts.emplace_back(word);
    }
    ++words_[place->second].count;
  });
  for (const std::string_view special : kSpecialTokens) add(std::string(special));
  add_alphabet(texts);
  for (std::size_t word = 0; word < words_.size(); ++word) count_pairs(word, 1);
  queue_touched();
}

// In UTF-8 the order of bytes is the order of code points.
void PieceTrainer::add_alphabet(const std::vector<std::string>& texts) {
  const std::string continues(WordPiece::kContinues);
  std::set<std::string> characters, continuing;
  const auto for_each_symbol = [&](const std::string& text, const auto& symbol) {
    std::string_view rest = text;
    while (!rest.empty()) {
      const std::string_view c = first_character(rest);
      symbol(std::string(c), rest.size() != text.size());
      rest.remove_prefix(c.size());
    }
  };
  for (const std::string& text : texts)
    for_each_symbol(text, [&](const std::string& c, bool is_behind) {
      characters.insert(c);
      if (is_behind) continuing.insert(c);
    });
  for (const std::string& c : characters) add(c);
  for (const std::string& c : continuing) add(continues + c);
  for (std::size_t word = 0; word < words_.size(); ++word)
    for_each_symbol(texts[word], [&](const std::string& c, bool is_behind) {
      words_[word].symbols.push_back(ids_.at(is_behind ? continues + c : c));
    });
}

std::int32_t PieceTrainer::add(const std::string& token) {
  const auto [place, is_new] = ids_.emplace(token, static_cast<std::int32_t>(tokens_.size()));
  if (is_new) tokens_.push_back(token);
  return place->second;
}

void PieceTrainer::count_pairs(std::size_t word, std::int64_t sign) {
  const auto& [symbols, count] = words_[word];
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
    const std::uint64_t pair = piece_pair(symbols[i], symbols[i + 1]);
    PairUses& uses = pairs_[pair];
    uses.count += sign * count;
    if (sign > 0 && (uses.words.empty() || uses.words.back() != word)) uses.words.push_back(word);
    touched_.insert(pair);
  }
}

void PieceTrainer::queue_touched() {
  for (const std::uint64_t pair : touched_)
    if (const std::int64_t count = pairs_[pair].count; count > 0) heap_.push({count, pair});
  touched_.clear();
}

std::optional<std::uint64_t> PieceTrainer::most_frequent() {
  for (; !heap_.empty(); heap_.pop())
    if (const PieceCandidate& top = heap_.top(); pairs_[top.pair].count == top.count)
      return top.pair;
  return std::nullopt;
}

bool PieceTrainer::merge() {
  const std::optional<std::uint64_t> pair = most_frequent();
  if (!pair) return false;
  const auto left = static_cast<std::int32_t>(*pair >> 32);
  const auto right = static_cast<std::int32_t>(*pair & 0xffffffff);
  const std::int32_t made =
      add(tokens_[static_cast<std::size_t>(left)] +
          tokens_[static_cast<std::size_t>(right)].substr(WordPiece::kContinues.size()));
  // From the left, as they stand: of "aaa" the first two are merged.
  const std::vector<std::size_t> words = std::move(pairs_[*pair].words);
  for (const std::size_t word : words) {
    std::vector<std::int32_t>& symbols = words_[word].symbols;
    const auto is_here = [&](std::size_t i) {
      return i + 1 < symbols.size() && symbols[i] == left && symbols[i + 1] == right;
    };
    std::size_t first = 0;
    while (first < symbols.size() && !is_here(first)) ++first;
    if (first == symbols.size()) continue;  // it had the pair, or stands twice in the list
    count_pairs(word, -1);
    std::size_t kept = first;
    for (std::size_t i = first; i < symbols.size(); ++kept) {
      const std::size_t taken = is_here(i) ? 2 : 1;
      symbols[kept] = taken == 2 ? made : symbols[i];
      i += taken;
    }
    symbols.resize(kept);
    count_pairs(word, 1);
  }
  queue_touched();
  return true;
}

}  // namespace

WordPiece WordPiece::train(std::string_view text, std::int64_t vocabulary, const WordRules& rules) {
  if (vocabulary > kLargestVocabulary)
    fail(fmt::format("wordpiece: vocabulary of {}, expected {} or fewer", vocabulary,
                     kLargestVocabulary));
  PieceTrainer trainer(text, rules);
  std::vector<std::string>& tokens = trainer.tokens();
  const auto size = [&] { return static_cast<std::int64_t>(tokens.size()); };
  if (vocabulary < size())
    fail(fmt::format(
        "wordpiece: vocabulary of {}, expected {} or more: {} special tokens and {} "
        "characters, with and without \"##\"",
        vocabulary, size(), kSpecialTokens.size(), tokens.size() - kSpecialTokens.size()));
  while (size() < vocabulary)
    if (!trainer.merge())
      fail(
          fmt::format("wordpiece: vocabulary of {}, but the text yields only {} tokens; expected "
                      "a longer text or a smaller vocabulary",
                      vocabulary, size()));
  return {std::move(tokens), rules};
}

}  // namespace aisc
