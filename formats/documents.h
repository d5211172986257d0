// Texts one after the other as tokens, whole or in parts that ranks encode.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/core/range.h"
#include "formats/tokenizer.h"

namespace aisc {

// What stands between the files of a corpus, and in them.
enum class SpecialTokens {
  AreText,  // "<|endoftext|>" in a text is letters, as Tokenizer::encode has it
  AreRead   // it is the token, as Hugging Face's tokenizers read it
};

// The tokens of `text`, with the end of text between the texts that it consists of, where the
// tokenizer has one: `seams` are the bytes before which the second, third, ... text begins.
std::vector<std::int32_t> encode_documents(const Tokenizer& tokenizer, std::string_view text,
                                           std::span<const std::int64_t> seams,
                                           SpecialTokens special = SpecialTokens::AreText);

// A part of such a text: bytes of it, and which of the seams lie there.
struct DocumentPart {
  Range bytes, seams;
};

// `text` in so many parts, of about equally many bytes, some of which may be empty. Encoded one by
// one, their tokens behind one another are those of encode_documents, for any number of parts:
// texts are cut at seams where the end of text stands there, else where is_border() holds. A text
// without such a place is one part.
std::vector<DocumentPart> divide_documents(const Tokenizer& tokenizer, std::string_view text,
                                           std::span<const std::int64_t> seams,
                                           SpecialTokens special, std::int64_t parts);
std::vector<std::int32_t> encode_part(const Tokenizer& tokenizer, std::string_view text,
                                      std::span<const std::int64_t> seams, SpecialTokens special,
                                      const DocumentPart& part);

}  // namespace aisc
