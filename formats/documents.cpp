#include "formats/documents.h"

#include <optional>

namespace aisc {

std::vector<std::int32_t> encode_documents(const Tokenizer& tokenizer, std::string_view text,
                                           std::span<const std::int64_t> seams,
                                           SpecialTokens special) {
  const std::optional<std::int32_t> end = tokenizer.end_of_text();
  if (!end) return tokenizer.encode(text);
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
  std::size_t begin = 0;
  for (const std::int64_t seam : seams) {
    const auto next = static_cast<std::size_t>(seam);
    append_document(text.substr(begin, next - begin));
    ids.push_back(*end);
    begin = next;
  }
  append_document(text.substr(begin));
  return ids;
}

}  // namespace aisc
