// A text as tokens, and the words that a tokenizer is learnt from, by ranks that each look at a
// part of it. Every rank has the text. Collective, and the same for any number of ranks.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "common/comm/communicator.h"
#include "formats/documents.h"
#include "formats/word_counts.h"

namespace aisc {

// count_words(text), on rank 0; elsewhere nothing. Learning merges is left to it: each depends on
// the one before, and they see distinct words alone, of which a text has far fewer than bytes.
std::vector<WordCount> count_words(Communicator& ranks, std::string_view text);

// encode_documents(...), on rank 0; elsewhere nothing. Throws Error for a tokenizer of more than
// 65,536 tokens, which token files have no room for.
std::vector<std::uint16_t> encode_documents(Communicator& ranks, const Tokenizer& tokenizer,
                                            std::string_view text,
                                            std::span<const std::int64_t> seams,
                                            SpecialTokens special);

}  // namespace aisc
