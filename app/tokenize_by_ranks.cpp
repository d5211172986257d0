#include "app/tokenize_by_ranks.h"

#include <fmt/format.h>

#include <cstring>
#include <string>

#include "common/comm/host_values.h"
#include "common/core/error.h"
#include "formats/pretokenize.h"

namespace aisc {
namespace {

// A word as a rank tells it: where it first stands in the text that all have.
struct PlacedWord {
  std::int64_t place, bytes, count;
};

template <class T>
std::string to_bytes(const std::vector<T>& values) {
  const auto* bytes = reinterpret_cast<const char*>(values.data());
  return values.empty() ? "" : std::string(bytes, values.size() * sizeof(T));
}

template <class T>
std::vector<T> from_bytes(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

// The part of `text` that a rank counts: cuts are where words end in any case.
Range own_part(const Communicator& ranks, std::string_view text) {
  const auto cut = [&](std::int64_t part) {
    std::int64_t at = share_of(std::ssize(text), part, ranks.size()).begin;
    while (!is_border(text, index(at))) ++at;
    return at;
  };
  return {cut(ranks.rank()), cut(ranks.rank() + 1)};
}

}  // namespace

std::vector<WordCount> count_words(Communicator& ranks, std::string_view text) {
  const Range part = own_part(ranks, text);
  std::vector<PlacedWord> mine;
  for (const auto& [word, count] : count_words(text.substr(index(part.begin), index(part.count()))))
    mine.push_back({word.data() - text.data(), std::ssize(word), count});
  // comm: 24 bytes a distinct word of each rank, to rank 0, since the sums are over all of them
  std::vector<std::vector<WordCount>> parts;
  for (const std::string& bytes : gather_texts(ranks, to_bytes(mine))) {
    auto& words = parts.emplace_back();
    for (const PlacedWord& w : from_bytes<PlacedWord>(bytes))
      words.push_back({text.substr(index(w.place), index(w.bytes)), w.count});
  }
  return merge_counts(parts);
}

std::vector<std::uint16_t> encode_documents(Communicator& ranks, const Tokenizer& tokenizer,
                                            std::string_view text,
                                            std::span<const std::int64_t> seams,
                                            SpecialTokens special) {
  constexpr std::int64_t kMost = 65'536;
  if (tokenizer.vocabulary() > kMost)
    fail(
        fmt::format("the tokenizer has {} tokens, expected {} or fewer, as token files hold 16 "
                    "bits",
                    tokenizer.vocabulary(), kMost));
  const DocumentPart part =
      divide_documents(tokenizer, text, seams, special, ranks.size())[index(ranks.rank())];
  const std::vector<std::int32_t> ids = encode_part(tokenizer, text, seams, special, part);
  const std::vector<std::uint16_t> mine(ids.begin(), ids.end());
  // comm: 2 bytes a token of each rank, to rank 0, which has them in the order of the ranks
  std::vector<std::uint16_t> all;
  for (const std::string& bytes : gather_texts(ranks, to_bytes(mine))) {
    const auto some = from_bytes<std::uint16_t>(bytes);
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

}  // namespace aisc
