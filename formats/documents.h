// Texts one after the other as tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

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

}  // namespace aisc
