#include "formats/wordpiece.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/core/error.h"
#include "common/core/system/files.h"

namespace aisc {

WordPiece::WordPiece(std::vector<std::string> tokens, const WordRules& rules)
    : tokens_(std::move(tokens)), rules_(rules) {
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    const std::string_view token = tokens_[id];
    const bool continues = token.starts_with(kContinues);
    const std::string_view piece = token.substr(continues ? kContinues.size() : 0);
    (continues ? continues_ : begins_).emplace(piece, static_cast<std::int32_t>(id));
    longest_ = std::max(longest_, piece.size());
  }
  special_ = {begins_.at("[PAD]"), begins_.at("[UNK]"), begins_.at("[CLS]"), begins_.at("[SEP]"),
              begins_.at("[MASK]")};
}

const std::string& WordPiece::token(std::int32_t id) const {
  if (id < 0 || id >= vocabulary())
    fail(fmt::format("wordpiece: id {} is outside the vocabulary, expected 0 to {}", id,
                     vocabulary() - 1));
  return tokens_[static_cast<std::size_t>(id)];
}

bool WordPiece::is_special(std::int32_t id) const {
  return id == special_.pad || id == special_.unknown || id == special_.cls || id == special_.sep ||
         id == special_.mask;
}

// Before each round pieces make up word[0, begin). The round takes the longest piece that the rest
// begins with. Where there is none, what was found before is given up: the word is unknown as a
// whole.
void WordPiece::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  const std::size_t known = ids.size();
  const auto give_up = [&] {
    ids.resize(known);
    ids.push_back(special_.unknown);
  };
  if (characters_of(word) > kLongestWord) return give_up();
  for (std::size_t begin = 0; begin < word.size();) {
    const Ids& pieces = begin == 0 ? begins_ : continues_;
    std::size_t length = std::min(word.size() - begin, longest_);
    // Bytes that end amid a character are no piece: the vocabulary is UTF-8, too.
    auto found = pieces.find(word.substr(begin, length));
    while (found == pieces.end() && --length > 0) found = pieces.find(word.substr(begin, length));
    if (found == pieces.end()) return give_up();
    ids.push_back(found->second);
    begin += length;
  }
}

std::vector<std::int32_t> WordPiece::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 4);
  for_each_word(text, rules_, [&](std::string_view word) { encode_word(word, ids); });
  return ids;
}

WordPiece::Encoded WordPiece::encode_single(std::string_view text, std::int64_t most) const {
  if (most < 2)
    fail(fmt::format("wordpiece: at most {} ids, expected 2 or more: [CLS] and [SEP]", most));
  std::vector<std::int32_t> ids = encode(text);
  ids.resize(std::min(ids.size(), static_cast<std::size_t>(most - 2)));
  ids.insert(ids.begin(), special_.cls);
  ids.push_back(special_.sep);
  std::vector<std::int32_t> segments(ids.size());
  return {std::move(ids), std::move(segments)};
}

WordPiece::Encoded WordPiece::encode_pair(std::string_view a, std::string_view b,
                                          std::int64_t most) const {
  if (most < 3)
    fail(
        fmt::format("wordpiece: at most {} ids, expected 3 or more: [CLS], [SEP] and [SEP]", most));
  const std::vector<std::int32_t> first = encode(a), second = encode(b);
  const auto room = static_cast<std::size_t>(most - 3);
  const bool a_is_longer = first.size() > second.size();
  std::size_t shorter = std::min(first.size(), second.size());
  std::size_t longer = std::max(first.size(), second.size());
  if (shorter + longer > room) {
    shorter = std::min(shorter, room / 2);
    longer = room - shorter;
  }
  Encoded pair;
  const auto add = [&](const std::vector<std::int32_t>& ids, std::size_t count,
                       std::int32_t segment) {
    pair.ids.insert(pair.ids.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
    pair.ids.push_back(special_.sep);
    pair.segments.resize(pair.ids.size(), segment);
  };
  pair.ids.push_back(special_.cls);
  add(first, a_is_longer ? longer : shorter, 0);
  add(second, a_is_longer ? shorter : longer, 1);
  return pair;
}

std::string WordPiece::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) {
    const std::string& piece = token(id);
    if (is_special(id)) continue;
    if (piece.starts_with(kContinues) && !text.empty())
      text += piece.substr(kContinues.size());
    else
      text += (text.empty() ? "" : " ") + piece;
  }
  return text;
}

std::uint64_t WordPiece::hash() const {
  Checksum sum;
  const auto add = [&](std::uint64_t number) { sum.add(&number, sizeof number); };
  add(tokens_.size());
  for (const std::string& token : tokens_) {
    add(token.size());
    sum.add(token.data(), token.size());
  }
  add((rules_.lower_case ? 1u : 0u) + (rules_.strip_accents ? 2u : 0u) +
      (rules_.split_ideographs ? 4u : 0u));
  return sum.value();
}

}  // namespace aisc
