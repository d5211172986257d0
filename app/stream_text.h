// Text that a model writes, on the terminal as it comes.
#pragma once

#include <cstdint>
#include <string>

#include "app/generate.h"
#include "app/interrupt.h"
#include "common/comm/rank.h"
#include "formats/tokenizer.h"

namespace aisc {

// `options` for text of this tokenizer.
GenerateOptions for_tokenizer(GenerateOptions options, const Tokenizer& tokenizer,
                              const GptConfig& config);

struct StreamedText {
  std::string text;  // without the prompt
  std::int64_t tokens = 0;
};

// Prints the prompt and what the model makes of it, as it comes, until it ends or Ctrl-C. With
// `ranks` it is collective, as generate(), and rank 0 prints; `interrupt` may be null on the
// others.
StreamedText stream_text(const Rank& rank, const Model& model, const GptConfig& config,
                         const Tokenizer& tokenizer, const std::string& prompt,
                         const GenerateOptions& options, const Interrupt* interrupt,
                         const TextRanks& ranks = {});

}  // namespace aisc
