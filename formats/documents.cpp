#include "formats/documents.h"

#include <algorithm>
#include <optional>

#include "formats/pretokenize.h"

namespace aisc {
namespace {

using Seams = std::span<const std::int64_t>;

// Whether byte `at` of a document is inside the name of the end of text, where that is one token.
// A name never overlaps another one: its first letter, <, occurs in it once. So those that are read
// are the same from wherever one begins outside of them.
bool is_in_name(std::string_view document, std::size_t at) {
  const std::string_view name = Tokenizer::kEndOfText;
  const std::size_t first = at < name.size() ? 0 : at - name.size() + 1;
  return document.substr(first, at + name.size() - 1 - first).find(name) != std::string_view::npos;
}

// The first place at or behind `from` where the text may be cut. Each document is looked at by
// itself, as it is encoded: bytes of two that meet at a seam are not one character.
std::int64_t next_cut(const Tokenizer& tokenizer, std::string_view text, Seams seams,
                      SpecialTokens special, std::int64_t from) {
  if (!tokenizer.end_of_text()) seams = {};  // then all is one document
  auto next = std::upper_bound(seams.begin(), seams.end(), from);
  const std::int64_t begin = next == seams.begin() ? 0 : *(next - 1);
  const std::int64_t end = next == seams.end() ? std::ssize(text) : *next;
  const std::string_view document = text.substr(index(begin), index(end - begin));
  std::size_t at = index(from - begin);
  while (!is_border(document, at) ||
         (special == SpecialTokens::AreRead && tokenizer.end_of_text() && is_in_name(document, at)))
    ++at;
  return begin + static_cast<std::int64_t>(at);
}

}  // namespace

std::vector<std::int32_t> encode_documents(const Tokenizer& tokenizer, std::string_view text,
                                           Seams seams, SpecialTokens special) {
  return encode_part(tokenizer, text, seams, special,
                     {{0, std::ssize(text)}, {0, std::ssize(seams)}});
}

std::vector<DocumentPart> divide_documents(const Tokenizer& tokenizer, std::string_view text,
                                           Seams seams, SpecialTokens special, std::int64_t parts) {
  // A seam belongs to the part that begins there, and those at the end of the text to the last one.
  const auto seam_at = [&](std::int64_t byte) {
    return std::lower_bound(seams.begin(), seams.end(), byte) - seams.begin();
  };
  std::vector<DocumentPart> all;
  DocumentPart part;
  for (std::int64_t i = 1; i <= parts; ++i) {
    const std::int64_t size = std::ssize(text);
    part.bytes.end =
        i == parts ? size
                   : next_cut(tokenizer, text, seams, special, share_of(size, i, parts).begin);
    part.seams.end = i == parts ? std::ssize(seams) : seam_at(part.bytes.end);
    all.push_back(part);
    part = {{part.bytes.end, 0}, {part.seams.end, 0}};
  }
  return all;
}

std::vector<std::int32_t> encode_part(const Tokenizer& tokenizer, std::string_view text,
                                      Seams seams, SpecialTokens special,
                                      const DocumentPart& part) {
  const auto bytes = [&](std::int64_t begin, std::int64_t end) {
    return text.substr(index(begin), index(end - begin));
  };
  const std::optional<std::int32_t> end = tokenizer.end_of_text();
  if (!end) return tokenizer.encode(bytes(part.bytes.begin, part.bytes.end));
  std::vector<std::int32_t> ids;
  const auto append = [&](std::string_view piece) {
    const std::vector<std::int32_t> some = tokenizer.encode(piece);
    ids.insert(ids.end(), some.begin(), some.end());
  };
  const auto append_document = [&](std::string_view document) {
    const std::string& name = tokenizer.bytes_of(*end);
    std::size_t at = 0;
    while (special == SpecialTokens::AreRead &&
           (at = document.find(name)) != std::string_view::npos) {
      append(document.substr(0, at));
      ids.push_back(*end);
      document.remove_prefix(at + name.size());
    }
    append(document);
  };
  std::int64_t begin = part.bytes.begin;
  for (const std::int64_t seam :
       seams.subspan(index(part.seams.begin), index(part.seams.count()))) {
    append_document(bytes(begin, seam));
    ids.push_back(*end);
    begin = seam;
  }
  append_document(bytes(begin, part.bytes.end));
  return ids;
}

}  // namespace aisc
