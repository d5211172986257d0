// Learns merges (Sennrich et al., 2016, algorithm 1): again and again the most frequent pair of
// neighbours becomes one token.
//
// Every distinct word stands once in an array of symbols, with the number of times that the text
// has it. Each pair knows its count and the places where it stood, so a merge touches its own
// places and the neighbours' counts, not the text. The most frequent pair comes from a heap whose
// entries may be out of date: counts there are too high at worst, since a pair is only ever born in
// the step that makes one of its two tokens, and loses places afterwards. An entry that is too high
// goes back with its count of now.
#include <fmt/format.h>

#include <limits>
#include <queue>

#include "common/core/error.h"
#include "formats/byte_alphabet.h"
#include "formats/tokenizer.h"
#include "formats/word_counts.h"

namespace aisc {
namespace {

using Place = std::uint32_t;  // in the array of symbols
constexpr Place kNowhere = std::numeric_limits<Place>::max();
constexpr std::int32_t kGone = -1;  // merged into the symbol before

struct Symbol {
  std::int32_t id;
  Place before, after;  // within the word
  std::uint32_t word;
};

struct PairUse {
  std::int64_t count = 0;     // in the text
  std::vector<Place> places;  // of the left symbol, ascending; out of date where it is another now
};

struct PairCount {
  std::int64_t count;
  std::uint64_t pair;
};

struct IsLessUrgent {
  bool operator()(const PairCount& a, const PairCount& b) const {
    return a.count != b.count ? a.count < b.count : a.pair > b.pair;
  }
};

std::uint64_t pair_of(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

class Trainer {
 public:
  Trainer(std::span<const WordCount> words, const std::array<std::int32_t, 256>& byte_ids);

  // The most frequent pair, none if no word has two symbols left.
  std::optional<std::uint64_t> most_frequent();
  void merge(std::uint64_t pair, std::int32_t result);

 private:
  void add_word(std::string_view word, std::int64_t count,
                const std::array<std::int32_t, 256>& byte_ids);
  std::int64_t count_at(Place place) const { return word_counts_[symbols_[place].word]; }
  void gain(Place left, Place right);
  void lose(Place left, Place right);
  void queue_born();

  std::vector<Symbol> symbols_;
  std::vector<std::int64_t> word_counts_;
  std::unordered_map<std::uint64_t, PairUse> pairs_;
  std::vector<std::uint64_t> born_;  // pairs that are not in the heap yet
  std::priority_queue<PairCount, std::vector<PairCount>, IsLessUrgent> heap_;
};

Trainer::Trainer(std::span<const WordCount> words, const std::array<std::int32_t, 256>& byte_ids) {
  for (const auto& [word, count] : words) add_word(word, count, byte_ids);
  queue_born();
}

void Trainer::add_word(std::string_view word, std::int64_t count,
                       const std::array<std::int32_t, 256>& byte_ids) {
  const std::size_t begin = symbols_.size();
  if (word.size() >= kNowhere - begin)
    fail(fmt::format("tokenizer: the text has more than {} bytes in distinct words", kNowhere - 1));
  const auto number = static_cast<std::uint32_t>(word_counts_.size());
  word_counts_.push_back(count);
  for (std::size_t i = 0; i < word.size(); ++i) {
    const auto at = static_cast<Place>(begin + i);
    symbols_.push_back({byte_ids[static_cast<unsigned char>(word[i])], i == 0 ? kNowhere : at - 1,
                        i + 1 == word.size() ? kNowhere : at + 1, number});
    if (i > 0) gain(at - 1, at);
  }
}

void Trainer::gain(Place left, Place right) {
  const std::uint64_t pair = pair_of(symbols_[left].id, symbols_[right].id);
  PairUse& use = pairs_[pair];
  if (use.places.empty()) born_.push_back(pair);
  use.count += count_at(left);
  use.places.push_back(left);
}

void Trainer::lose(Place left, Place right) {
  const auto found = pairs_.find(pair_of(symbols_[left].id, symbols_[right].id));
  if (found != pairs_.end()) found->second.count -= count_at(left);  // absent: being merged
}

void Trainer::queue_born() {
  for (const std::uint64_t pair : born_) heap_.push({pairs_[pair].count, pair});
  born_.clear();
}

std::optional<std::uint64_t> Trainer::most_frequent() {
  while (!heap_.empty()) {
    const PairCount top = heap_.top();
    const std::int64_t count = pairs_[top.pair].count;
    if (count == top.count && count > 0) return top.pair;
    heap_.pop();
    if (count > 0)
      heap_.push({count, top.pair});
    else
      pairs_.erase(top.pair);
  }
  return std::nullopt;
}

void Trainer::merge(std::uint64_t pair, std::int32_t result) {
  heap_.pop();
  const auto left_id = static_cast<std::int32_t>(pair >> 32);
  const auto right_id = static_cast<std::int32_t>(pair & 0xffffffff);
  const std::vector<Place> places = std::move(pairs_[pair].places);
  pairs_.erase(pair);
  for (const Place left : places) {
    const Place right = symbols_[left].after;
    if (symbols_[left].id != left_id || right == kNowhere || symbols_[right].id != right_id)
      continue;
    const Place before = symbols_[left].before, after = symbols_[right].after;
    if (before != kNowhere) lose(before, left);
    if (after != kNowhere) lose(right, after);
    symbols_[left].id = result;
    symbols_[left].after = after;
    symbols_[right].id = kGone;
    if (after != kNowhere) symbols_[after].before = left;
    if (before != kNowhere) gain(before, left);
    if (after != kNowhere) gain(left, after);
  }
  queue_born();
}

}  // namespace

Tokenizer Tokenizer::train(std::string_view text, std::int64_t vocabulary) {
  return train(count_words(text), vocabulary);
}

Tokenizer Tokenizer::train(std::span<const WordCount> words, std::int64_t vocabulary) {
  constexpr std::int64_t kSmallest = 257;
  if (vocabulary < kSmallest || vocabulary > kLargestVocabulary)
    fail(
        fmt::format("tokenizer: vocabulary of {}, expected {} (the bytes and the end of text) to "
                    "{}",
                    vocabulary, kSmallest, kLargestVocabulary));
  std::vector<std::string> tokens;
  std::array<std::int32_t, 256> byte_ids{};
  for (const std::uint8_t byte : bytes_in_alphabet_order()) {
    byte_ids[byte] = static_cast<std::int32_t>(tokens.size());
    tokens.emplace_back(1, static_cast<char>(byte));
  }
  std::vector<Merge> merges;
  Trainer trainer(words, byte_ids);
  while (static_cast<std::int64_t>(tokens.size()) + 1 < vocabulary) {
    const std::optional<std::uint64_t> pair = trainer.most_frequent();
    if (!pair)
      fail(
          fmt::format("tokenizer: vocabulary of {}, but the text yields only {} tokens: {} bytes, "
                      "{} merges and the end of text; expected a longer text or a smaller "
                      "vocabulary",
                      vocabulary, tokens.size() + 1, 256, merges.size()));
    const Merge merge{static_cast<std::int32_t>(*pair >> 32),
                      static_cast<std::int32_t>(*pair & 0xffffffff),
                      static_cast<std::int32_t>(tokens.size())};
    tokens.push_back(tokens[static_cast<std::size_t>(merge.left)] +
                     tokens[static_cast<std::size_t>(merge.right)]);
    merges.push_back(merge);
    trainer.merge(*pair, merge.result);
  }
  const auto end = static_cast<std::int32_t>(tokens.size());
  tokens.emplace_back(kEndOfText);
  return {std::move(tokens), std::move(merges), {end}};
}

}  // namespace aisc
