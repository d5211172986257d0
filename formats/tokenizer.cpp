#include "formats/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "common/core/error.h"
#include "common/core/system/files.h"
#include "formats/pretokenize.h"

namespace aisc {
namespace {

constexpr std::int32_t kNoRank = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

std::uint64_t key_of(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

// Words met lately in one text, each with where in the output its ids stand: text repeats its
// words, and copying ids is far cheaper than merging. A word has one slot; the last one keeps it.
class WordCache {
 public:
  struct Slot {
    std::string_view word;
    std::size_t begin = 0, count = 0;  // of its ids in the output
  };

  explicit WordCache(std::size_t text_bytes)
      : slots_(std::bit_ceil(std::clamp<std::size_t>(text_bytes / 8, 1, kLargest))) {}

  Slot& slot_of(std::string_view word) {
    return slots_[std::hash<std::string_view>{}(word) & (slots_.size() - 1)];
  }

 private:
  static constexpr std::size_t kLargest = std::size_t{1} << 16;  // 2 MiB
  std::vector<Slot> slots_;
};

}  // namespace

struct Tokenizer::Scratch {
  // A piece of a word; what is left of the word is a doubly linked list of them.
  struct Piece {
    std::int32_t id;
    std::size_t before, after;
  };

  // A merge that was possible at piece `at` when it was noted. It is stale if the pieces there have
  // changed since.
  struct Candidate {
    std::int32_t rank;
    std::size_t at;
    bool operator<(const Candidate& other) const {  // comes later: a heap has the greatest on top
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };

  std::vector<Piece> pieces;
  std::vector<Candidate> candidates;  // a heap, the next merge on top
};

Tokenizer::Tokenizer(std::vector<std::string> tokens, std::vector<Merge> merges,
                     std::vector<std::int32_t> special)
    : tokens_(std::move(tokens)), merges_(std::move(merges)), special_(std::move(special)) {
  for (std::size_t id = 0; id < tokens_.size(); ++id)
    if (tokens_[id].size() == 1)
      byte_ids_[static_cast<unsigned char>(tokens_[id][0])] = static_cast<std::int32_t>(id);
  ranks_.reserve(merges_.size());
  for (std::size_t rank = 0; rank < merges_.size(); ++rank)
    ranks_.emplace(key_of(merges_[rank].left, merges_[rank].right),
                   static_cast<std::int32_t>(rank));
  for (const std::int32_t id : special_)
    if (bytes_of(id) == kEndOfText) end_of_text_ = id;
}

Tokenizer Tokenizer::bytes() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  return {std::move(tokens), {}, {}};
}

std::int32_t Tokenizer::rank_of(std::int32_t left, std::int32_t right) const {
  const auto found = ranks_.find(key_of(left, right));
  return found == ranks_.end() ? kNoRank : found->second;
}

// Candidates are taken by rank from a heap, stale ones dropped. A merge notes the two pairs that it
// makes. So n bytes take O(n log n), where searching the word for every merge would take O(n^2).
void Tokenizer::encode_word(std::string_view word, Scratch& scratch,
                            std::vector<std::int32_t>& ids) const {
  auto& [pieces, candidates] = scratch;
  pieces.clear();
  candidates.clear();
  for (std::size_t i = 0; i < word.size(); ++i)
    pieces.push_back({byte_ids_[static_cast<unsigned char>(word[i])], i == 0 ? kNone : i - 1,
                      i + 1 == word.size() ? kNone : i + 1});
  for (std::size_t i = 0; i + 1 < pieces.size(); ++i)
    if (const std::int32_t rank = rank_of(pieces[i].id, pieces[i + 1].id); rank != kNoRank)
      candidates.push_back({rank, i});
  std::make_heap(candidates.begin(), candidates.end());

  const auto note = [&, this](std::size_t at) {
    if (at == kNone || scratch.pieces[at].after == kNone) return;
    const Scratch::Piece& piece = scratch.pieces[at];
    const std::int32_t rank = rank_of(piece.id, scratch.pieces[piece.after].id);
    if (rank == kNoRank) return;
    scratch.candidates.push_back({rank, at});
    std::push_heap(scratch.candidates.begin(), scratch.candidates.end());
  };
  while (!candidates.empty()) {
    const Scratch::Candidate next = candidates.front();
    std::pop_heap(candidates.begin(), candidates.end());
    candidates.pop_back();
    const Merge& merge = merges_[static_cast<std::size_t>(next.rank)];
    Scratch::Piece& left = pieces[next.at];
    if (left.id != merge.left || left.after == kNone) continue;
    Scratch::Piece& right = pieces[left.after];
    if (right.id != merge.right) continue;
    left.id = merge.result;
    right.id = -1;  // no candidate of its own holds any more
    left.after = right.after;
    if (left.after != kNone) pieces[left.after].before = next.at;
    note(left.before);
    note(next.at);
  }
  for (std::size_t at = 0; at != kNone; at = pieces[at].after) ids.push_back(pieces[at].id);
}

std::vector<std::int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<std::int32_t> ids;
  ids.reserve(text.size() / 4);
  WordCache cache(text.size());
  Scratch scratch;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, first_word(text));
    text.remove_prefix(word.size());
    const std::size_t begin = ids.size();
    WordCache::Slot& slot = cache.slot_of(word);
    if (slot.word == word) {
      ids.resize(begin + slot.count);
      std::copy_n(ids.data() + slot.begin, slot.count, ids.data() + begin);
    } else {
      encode_word(word, scratch, ids);
      slot = {word, begin, ids.size() - begin};
    }
  }
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string bytes;
  for (const std::int32_t id : ids) bytes += bytes_of(id);
  return bytes;
}

const std::string& Tokenizer::bytes_of(std::int32_t id) const {
  if (id < 0 || id >= vocabulary())
    fail(fmt::format("tokenizer: id {} is outside the vocabulary, expected 0 to {}", id,
                     vocabulary() - 1));
  return tokens_[static_cast<std::size_t>(id)];
}

std::optional<std::int32_t> Tokenizer::end_of_text() const { return end_of_text_; }

std::uint64_t Tokenizer::hash() const {
  Checksum sum;
  const auto add = [&](std::uint64_t number) { sum.add(&number, sizeof number); };
  add(tokens_.size());
  for (const std::string& token : tokens_) {
    add(token.size());
    sum.add(token.data(), token.size());
  }
  for (const Merge& merge : merges_) {
    add(key_of(merge.left, merge.right));
    add(static_cast<std::uint64_t>(merge.result));
  }
  return sum.value();
}

}  // namespace aisc
